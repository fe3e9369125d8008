"""Words and numbers that help shows and that are defined in modules which take long to import.

Written down a second time so that `rota runs --help` need not wait; a test compares them with where they are from.
"""

PRIORITIES = ("urgent", "high", "normal", "low")
ALLOCATIONS = ("least_recently_used", "most_recently_used", "nearest_inputs")
UNSERVABLE = ("ladder", "fail")
PROPERTY_RULES = ("minimum", "exact", "priority", "ignore")
MARKS = ("success", "failed", "skipped")
ITEM_PRIORITIES = ("low", "medium", "high", "urgent")
APPROVALS = ("none", "manual")
ITEM_ATTEMPTS = 3
CLAIM_LEASE_S = 300
DRAIN_S = 60.0
LOAD_S = 30.0
BACKFILL_ACTIVE_RUNS = 4
ITEM_ACTIONS = ("approve", "reject", "cancel", "release", "fail", "retry", "requeue", "pause", "resume")
TOKEN_ROLES = ("reader", "writer", "admin", "worker", "agent", "analyst")
COORDINATOR = "ROTA_COORDINATOR"
