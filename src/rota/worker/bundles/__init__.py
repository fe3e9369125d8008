"""Bundles on a worker: the code of workflows, fetched once and kept as folders that nobody changes."""
