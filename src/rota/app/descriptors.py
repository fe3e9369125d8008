"""Open files of this process: sessions that listen are connections, and many systems allow a thousand by default."""

import resource

# Beside connections: the store, its journal, workers and what they print.
OTHERS = 1_000


def make_room(connections: int) -> None:
    """Allow as many open files as these connections need, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
