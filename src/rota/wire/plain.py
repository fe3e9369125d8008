"""Types of columns that everybody can read. Needs Arrow.

The engine holds texts and bytes as views, which many drivers and formats do not know.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

# Its types are of no use to a checker.
_pa: Any = import_module("pyarrow")


def plain_schema(schema: Any) -> Any:
    """A schema without views."""
    return _pa.schema([field.with_type(with_leaves(field.type, plain_type)) for field in schema])


def plain_type(kind: Any) -> Any:
    """A type that is not made of others, and is not a view."""
    if _pa.types.is_string_view(kind):
        return _pa.string()
    return _pa.binary() if _pa.types.is_binary_view(kind) else kind


def with_leaves(kind: Any, change: Callable[[Any], Any]) -> Any:
    """A type in which all that is not made of others is another one."""
    types = _pa.types

    def within(field: Any) -> Any:
        return field.with_type(with_leaves(field.type, change))

    if types.is_list(kind):
        return _pa.list_(within(kind.value_field))
    if types.is_large_list(kind):
        return _pa.large_list(within(kind.value_field))
    if types.is_fixed_size_list(kind):
        return _pa.list_(within(kind.value_field), kind.list_size)
    if types.is_struct(kind):
        return _pa.struct([within(kind.field(number)) for number in range(kind.num_fields)])
    if types.is_map(kind):
        return _pa.map_(with_leaves(kind.key_type, change), within(kind.item_field), kind.keys_sorted)
    return change(kind)
