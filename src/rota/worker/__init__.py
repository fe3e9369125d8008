"""The worker: a synchronous machine for its side of the Sync stream, and what runs attempts."""
