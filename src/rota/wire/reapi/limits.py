"""How much is said at once over the Remote Execution API, and how large the things are that it is said about."""

from typing import Final

# A message of gRPC has four megabytes unless both sides agree on more. A batch leaves room for the digests and statuses
# that go with its content: small content comes by the thousand.
BATCH_BYTES_MAX: Final = 3 << 20
# What a client may send in one message all the same.
MESSAGE_BYTES_MAX: Final = 8 << 20
BLOB_BYTES_MAX: Final = 4 << 30
# Digests in one batch of content: also empty ones cost something.
BATCH_BLOBS_MAX: Final = 10_000

INSTANCE_CHARS_MAX: Final = 250
UPLOAD_CHARS_MAX: Final = 250
PRIORITY_MAX: Final = 1_000_000

# One directory; and what a name in it may have, as on disk.
DIRECTORY_BYTES_MAX: Final = 4 << 20
NAME_BYTES_MAX: Final = 255
TARGET_BYTES_MAX: Final = 4_096
PATH_BYTES_MAX: Final = 4_096
# One message with a whole tree in it.
TREE_BYTES_MAX: Final = 32 << 20
# A tree as it will lie on a disk: one that is named twice is there twice.
TREE_PATHS_MAX: Final = 1_000_000
TREE_DEPTH_MAX: Final = 250
# Directories in answers to one question about a tree.
TREE_DIRECTORIES_MAX: Final = 100_000
TREE_PAGE_MAX: Final = 1_000
