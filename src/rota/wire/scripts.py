"""Scripts: programs whose functions are tasks. In a worker's process a script is a module of this name."""

import sys

from rota.wire.values import PICKLE, is_plain, pack
from rota.wire.work import Value

SCRIPT = "__rota_script__"


def pack_by_name(value: object) -> Value:
    """A value in which classes and functions of the running script stand by their names.

    Who opens it has loaded the script, so that they are the same there; a copy of a class would be another class.
    """
    if is_plain(value):
        return Value(*pack(value))
    import pickle  # like its sisters, only for who needs it

    try:
        return Value(PICKLE, pickle.dumps(value, protocol=5))
    except Exception:
        # Something that has no name, such as a lambda, is sent whole.
        return Value(*pack(value))


def lend_main() -> None:
    """Have what the script's tasks returned opened with the script's own classes, where it is the running program."""
    main = sys.modules.get("__main__")
    if SCRIPT not in sys.modules and getattr(main, "__file__", None):
        sys.modules[SCRIPT] = sys.modules["__main__"]
