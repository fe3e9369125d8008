"""Prepares large graphs outside the loop."""
