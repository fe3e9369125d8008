"""Builds: actions of the Remote Execution API as runs of one task."""
