"""The kinds of work: how each is written down, and how that becomes a graph. The core knows none of them."""
