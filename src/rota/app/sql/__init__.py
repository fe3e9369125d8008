"""Sessions: SQL and frames for programs, run in this process or as stages on workers."""
