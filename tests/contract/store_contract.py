"""The store contract: all that a store promises.

`test_store_contract.py` holds every adapter to it, `test_contract_notices.py` shows it stores that break it. A promise
is told from the port alone: what it does not ask for, a store may do as it likes. Never asked, because no coordinator
may do it: one batch that puts and drops the same key; tasks, growths or stories of a run that is not there; two runs
of one id that were created at the same instant; an epoch used through a store that was not given it, except to be
refused.
"""

from tests.contract import store_history, store_identity, store_reigns, store_revival, store_rows

PROMISES = [
    *store_rows.promise,
    *store_history.promise,
    *store_revival.promise,
    *store_reigns.promise,
    *store_identity.promise,
]
