"""Arrow's functions over columns. They are made when it is imported, and what stubs say of their types is wrong."""

from importlib import import_module
from typing import Any

pc: Any = import_module("pyarrow.compute")
