"""Work for agent sessions: how it is matched, and the mechanical scheduler that wakes them."""
