"""Workflows: graphs of Python functions and commands."""
