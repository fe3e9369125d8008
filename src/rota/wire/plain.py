"""Types of columns that everybody can read. Needs Arrow.

The engine holds texts and bytes as views, which many drivers and formats do not know.
"""

from importlib import import_module
from typing import Any

# Its types are of no use to a checker.
_pa: Any = import_module("pyarrow")


def plain_schema(schema: Any) -> Any:
    """A schema without views."""
    return _pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: Any) -> Any:
    return field.with_type(_plain(field.type))


def _plain(kind: Any) -> Any:
    types = _pa.types
    if types.is_string_view(kind):
        return _pa.string()
    if types.is_binary_view(kind):
        return _pa.binary()
    if types.is_list(kind):
        return _pa.list_(_plain_field(kind.value_field))
    if types.is_large_list(kind):
        return _pa.large_list(_plain_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return _pa.list_(_plain_field(kind.value_field), kind.list_size)
    if types.is_struct(kind):
        return _pa.struct([_plain_field(kind.field(number)) for number in range(kind.num_fields)])
    if types.is_map(kind):
        return _pa.map_(_plain(kind.key_type), _plain_field(kind.item_field), kind.keys_sorted)
    return kind
