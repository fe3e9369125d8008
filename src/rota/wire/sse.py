"""Server-sent events as text: what the interface for programs and the pages for people both write."""

import msgspec

# In a long silence a comment says that somebody is still there.
BEAT = b": still here\n\n"
# How long a client waits before it connects again.
RETRY = b"retry: 2000\n\n"


def event(name: str, value: object, id: str = "") -> bytes:
    """One event. JSON has no line breaks of its own, so its data is one line."""
    said = f"id: {id}\n".encode() if id else b""
    return said + b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"
