"""A worker whose coordinator is elsewhere."""
