"""Logs of attempts on their way: from the supervisor's files (`folder`) to the blobs (`driver`), where readers are."""
