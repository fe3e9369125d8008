"""Arrow Flight SQL: what clients ask for, as messages of our own with the numbers of its specification."""
