"""The Python client: the same surface near (embedded) and far, for blocking and for async programs."""
