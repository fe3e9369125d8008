"""The rig that proves failover: load, faults, what was seen of them, and the checks over all of it."""
