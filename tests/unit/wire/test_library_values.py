"""Values of common libraries, from nothing to 200 MB: each comes back as it was, in one piece or through a file."""

from pathlib import Path
from typing import Any

import pytest

from rota.wire.values import ARROW, ARROW_BATCH, PICKLE, PLAIN, pack, pack_or_spill, unpack, unpack_file
from rota.wire.work import INLINE_BYTES_MAX
from tests.library_values import LARGE, MAKERS, make, same

pytestmark = pytest.mark.slow

# Around the size up to which a value travels with its report, and around the frames of a pickle (64 KB).
SIZES = (0, 1, 100, 4_000, INLINE_BYTES_MAX - 200, INLINE_BYTES_MAX, 65_536, 70_000, 1_000_000)
MANY = 200 * 1024 * 1024


def round_trip(value: Any, target: Path) -> tuple[str, Any]:
    """How a value was encoded, and what came back of it from where it was put."""
    encoding, content = pack_or_spill(value, "a test", str(target))
    if content is not None:
        assert len(content) <= INLINE_BYTES_MAX
        assert not target.exists()
        return encoding, unpack(encoding, content, trusted=True)
    assert target.stat().st_size > 0
    return encoding, unpack_file(encoding, target, trusted=True)


@pytest.mark.parametrize("name", MAKERS)
def test_a_value_comes_back_whatever_its_library_and_size(name: str, tmp_path: Path) -> None:
    for size in SIZES:
        value = make(name, size)
        encoding, again = round_trip(value, tmp_path / str(size))
        assert same(value, again), f"{name} of {size} bytes"
        assert encoding in (PLAIN, PICKLE, ARROW, ARROW_BATCH)
        # The same from one piece, as code in threads passes it on.
        assert same(value, unpack(*pack(value), trusted=True)), f"{name} of {size} bytes, in one piece"


@pytest.mark.full
@pytest.mark.parametrize("name", LARGE)
def test_two_hundred_megabytes_come_back(name: str, tmp_path: Path) -> None:
    value = make(name, MANY)
    _, again = round_trip(value, tmp_path / "value")
    assert same(value, again)
