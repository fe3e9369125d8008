"""What people install: the wheel, alone and with each extra, in environments that hold nothing else."""
