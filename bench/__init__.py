"""Benchmarks: each measures CPU time of the real machines and prints one row of JSON."""
