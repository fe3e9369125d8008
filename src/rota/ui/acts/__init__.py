"""What may be done from a page: `acting` is how, the others are what about whom."""
