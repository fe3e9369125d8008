"""Several coordinators on real stores: what becomes of work when whoever leads dies, stands still or is cut off."""
