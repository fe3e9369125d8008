"""How functions are found again: by name where that leads back to them, else by value; each is called to prove it."""

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.kinds.workflow.functions import refer
from rota.running import Loading
from rota.wire.scripts import SCRIPT
from rota.wire.work import PythonWork
from rota.worker.runners.calls import find_function
from tests.unit.kinds import authored

ROOT = str(Path(__file__).parents[3])
HOME = "tests.unit.kinds.authored"


def call(work: PythonWork, *args: Any) -> Any:
    return find_function(work)(*args)


def test_a_function_of_a_module_is_named_with_the_folder_to_import_from():
    work = refer(authored.plain.function)
    assert (work.function, work.path, work.file, work.pickled) == (f"{HOME}:plain", ROOT, "", b"")
    assert call(work, 5) == 5


def test_a_task_with_other_options_is_the_same_function():
    assert refer(authored.plain.override(retries=3).function) == refer(authored.plain.function)


def test_methods_are_named_unless_they_are_bound():
    assert refer(authored.Shop.bound.function).function == f"{HOME}:Shop.bound"
    assert not refer(authored.Shop.bound.function).pickled
    assert refer(authored.Shop.static.function).function == f"{HOME}:Shop.static"
    bound = refer(authored.Shop("corner").ordinary)
    assert bound.pickled
    assert bound.path == ROOT, "so that its class can be found"
    assert call(bound, "tea") == "corner has tea"


@pytest.mark.parametrize(
    ("task", "args", "result"),
    [
        (authored.twice, (4,), 8),
        (authored.unnamed, (4,), 4),
        (rota.task(authored.Callable()), (4,), 5),
        (authored.nested(3), (4,), 12),
        (rota.task(lambda: "x"), (), "x"),
    ],
    ids=["partial", "lambda with a name of its own", "object", "nested", "lambda"],
)
def test_what_has_no_name_that_leads_back_travels_by_value(task: Any, args: tuple[Any, ...], result: object):
    work = refer(task.function)
    assert work.pickled
    assert call(work, *args) == result
    assert call(work, *args) == result, "also from those that are kept"


def test_names_of_tasks_without_one_are_readable():
    assert authored.twice.name == "multiply"
    assert authored.unnamed.name == "task"
    assert rota.task(authored.Callable()).name == "Callable"


def test_a_function_that_was_replaced_under_its_name_travels_by_value():
    module = types.ModuleType("replaced_module")
    sys.modules["replaced_module"] = module
    try:
        exec("def f():\n    return 'old'\n", module.__dict__)  # noqa: S102 - text of our own
        old = module.f
        exec("def f():\n    return 'new'\n", module.__dict__)  # noqa: S102 - text of our own
        assert refer(old).pickled
        assert call(refer(old)) == "old"
        assert not refer(module.f).pickled
    finally:
        del sys.modules["replaced_module"]


def test_a_function_that_holds_what_cannot_be_sent_is_refused_with_its_name():
    import threading

    lock = threading.Lock()

    @rota.task
    def guarded():
        with lock:
            return 1

    @rota.workflow
    def g():
        guarded()

    with pytest.raises(TypeError, match=r"task 'guarded': .*\.guarded' .*'_thread\.lock'"):
        g.build()


def test_a_builtin_can_be_a_task():
    assert call(refer(rota.task(len).function), [1, 2]) == 2
    assert rota.task(len).name == "len"


SCRIPT_TEXT = """
import sys
from dataclasses import dataclass

import rota
from rota.kinds.workflow.functions import refer
from rota.wire.work import encode_work

@dataclass
class Point:
    x: int

@rota.task
def named(value):
    return value

def helper(value):
    return value + 1

def nested():
    @rota.task
    def inner(value):
        return helper(value)
    return inner

if __name__ == "__main__":
    works = (refer(named.function), refer(nested().function))
    sys.stdout.buffer.write(encode_work(works))
"""


def test_functions_of_a_script_are_found_in_its_file(tmp_path: Path):
    import msgspec

    path = tmp_path / "script.py"
    path.write_text(SCRIPT_TEXT)
    said = subprocess.run([sys.executable, str(path)], capture_output=True, check=True, timeout=60).stdout
    named, nested = msgspec.msgpack.decode(said, type=tuple[PythonWork, PythonWork])
    assert named == PythonWork(function=f"{SCRIPT}:named", file=str(path))
    assert nested.pickled
    assert nested.file == str(path), "what it uses of its script is found there"


def test_a_prompt_has_no_file_so_its_functions_travel_by_value():
    program = (
        "import rota, sys\nfrom rota.kinds.workflow.functions import refer\n"
        "@rota.task\ndef f(): return 7\n"
        "work = refer(f.function)\nprint(bool(work.pickled), repr(work.file))\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout == "True ''\n"


def test_a_script_that_is_being_loaded_cannot_start_rota_again():
    with (
        Loading("/somewhere/script.py"),
        pytest.raises(RuntimeError, match=r"/somewhere/script.py starts Rota when it is loaded.*if __name__ =="),
    ):
        rota.Rota.embedded()
    rota.Rota.embedded(threads=True).close()
