"""What the engine has to be told so that a part of a plan gives its part of the rows."""

# Wherever a part of a plan is run. Otherwise a task would also read the files of others: in one process, partitions
# help each other out.
EXECUTING: tuple[tuple[str, str], ...] = (("datafusion.execution.enable_file_stream_work_stealing", "false"),)
