"""Tests with real files, processes and signals."""
