"""What every checker raises."""


class Broken(AssertionError):
    """A promise was broken in this world."""
