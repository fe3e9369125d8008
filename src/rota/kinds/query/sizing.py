"""How many partitions a query is planned with: from the slots that are there and from how much it reads.

Small tasks are dear: one costs as much as reading ten megabytes. So a little query is one task, and a large one has as
many tasks at a time as there are slots, in a few waves. Sizes are those of columns in memory, where the engine knows
them, else of files.
"""

MB = 1 << 20

# Below this a query is not worth an exchange.
ALONE_BYTES = 64 * MB
# What one task of a scan should read at most, as long as there are not too many of them.
TASK_BYTES = 1024 * MB
# How much tasks may read again, together, instead of waiting for others who read it once for all of them.
AGAIN_BYTES = 32 * MB
WAVES_MAX = 4
PARTITIONS_MAX = 512

# Up to this size the smaller side of a join is sent to every task instead of exchanging both sides.
BROADCAST_BYTES = 32 * MB
BROADCAST_ROWS = 2_000_000

# By how much a query that ran out of memory is cut finer, and how often.
FINER = 4
FINER_MAX = 2


def partitions(slots: int, read_bytes: int) -> int:
    """How many partitions, if `slots` tasks can run at once and `read_bytes` are to be read."""
    if (slots <= 1 and read_bytes <= TASK_BYTES) or read_bytes <= ALONE_BYTES:
        return 1
    waves = -(-read_bytes // (slots * TASK_BYTES))
    return min(slots * min(waves, WAVES_MAX), PARTITIONS_MAX)


def finer(partitions: int) -> int:
    """How many to try with after that many ran out of memory."""
    return min(max(2, partitions) * FINER, PARTITIONS_MAX)
