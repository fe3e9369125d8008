"""The files that a workflow depends on: what it imports, and everything where that cannot be known."""

import random
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rota.core import commands as cm
from rota.core.ids import BlobRef
from rota.core.model import Graph, TaskSpec
from rota.kinds.workflow.bundles import Sources
from rota.kinds.workflow.dependencies import Dependencies
from rota.kinds.workflow.deployment import with_code
from rota.wire.bundles import BundleFile, bundle_ref, pack_bundle
from rota.wire.deployments import Compiled
from tests.unit.core.world import TENANT, World

# Packages with and without an __init__ file, one in the other, and modules at the root.
FILES = (
    *("m0.py", "m1.py", "m2.py"),
    *("p/__init__.py", "p/a.py", "p/b.py", "p/q/__init__.py", "p/q/c.py", "p/q/d.py"),
    *("n/e.py", "n/o/f.py", "n/o/g.py"),
)
WORKFLOWS = ("w0.py", "w1.py", "p/w2.py", "n/o/w3.py")
ALL = (*FILES, *WORKFLOWS)


class Edge(NamedTuple):
    """One import statement: of which file in which, and how it is written."""

    source: str
    target: str
    style: int
    place: int


edges = st.lists(
    st.builds(Edge, st.sampled_from(ALL), st.sampled_from(FILES), st.integers(0, 4), st.integers(0, 4)), max_size=24
)


def module_of(name: str) -> str:
    parts = PurePosixPath(name).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statement(edge: Edge) -> str:
    """The import of a module as one of the ways to write it, in one of the places where it may stand."""
    module = module_of(edge.target)
    package, _, last = module.rpartition(".")
    own = PurePosixPath(edge.source).parts[:-1]
    start = tuple(package.split(".")) if package else ()
    shared = next(n for n in range(len(own), -1, -1) if start[:n] == own[:n])
    ways = [f"import {module}", f"import {module} as short"]
    if package:
        ways += [f"from {package} import {last}", f"from {module} import something as other"]
    if package and shared:
        dots = "." * (len(own) - shared + 1)
        ways.append(f"from {dots}{'.'.join(start[shared:])} import {last}")
    written = ways[edge.style % len(ways)]
    places = (
        "{}",
        "def later():\n    {}",
        "try:\n    {}\nexcept ImportError:\n    pass",
        "import sys\nif sys.platform == 'plan9':\n    {}",
        "class Inside:\n    def method(self):\n        {}",
    )
    return places[edge.place].format(written)


def read_by(target: str) -> list[str]:
    """The files that Python reads to import a module: its own, and those of the packages that it is in."""
    folders = PurePosixPath(target).parents
    return [target, *(name for name in (str(each / "__init__.py") for each in folders) if name in ALL)]


def reached(start: str, imports: list[Edge]) -> set[str]:
    """An oracle: what is reached from a file, by the definition."""
    found: set[str] = set()
    waiting = read_by(start)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [file for edge in imports if edge.source == name for file in read_by(edge.target)]
    return found


def rendered(imports: list[Edge], changed: str = "") -> tuple[BundleFile, ...]:
    texts = dict.fromkeys(ALL, "")
    for edge in imports:
        texts[edge.source] += statement(edge) + "\n"
    if changed:
        texts[changed] += "# a fix\n"
    return tuple(BundleFile(name, text.encode()) for name, text in texts.items())


def compiled(files: tuple[BundleFile, ...]) -> tuple[Compiled, ...]:
    """A workflow in each of its files, as compiling gives them, but for what was loaded."""
    found = tuple(
        Compiled(graph=Graph(name=Path(name).stem, tasks=(TaskSpec(id="t", kind="python"),)), source=f"{name}:1")
        for name in WORKFLOWS
    )
    return with_code(found, Sources(Path(), files, WORKFLOWS))


def deploy(world: World, files: tuple[BundleFile, ...]) -> dict[str, int]:
    """Deploy all workflows with one bundle; their versions."""
    bundle = bundle_ref(TENANT, pack_bundle(files))
    versions: dict[str, int] = {}
    for each in compiled(files):
        graph = structs.replace(each.graph, bundle=bundle)
        command = world.command(cm.DeployWorkflow, graph=graph, code=each.code, source=each.source)
        versions[f"{each.source.rpartition(':')[0]}"] = int(world.do(command).answer)
    return versions


@given(edges)
@settings(max_examples=300)
def test_a_workflow_depends_on_what_it_imports_and_on_nothing_else(imports: list[Edge]):
    dependencies = Dependencies(rendered(imports))
    for name in WORKFLOWS:
        assert set(dependencies.of([name])) == reached(name, imports)


@given(edges, st.lists(st.sampled_from(ALL), min_size=1, max_size=4))
@settings(max_examples=150)
def test_a_change_of_one_file_makes_new_versions_of_what_reaches_it_and_of_nothing_else(
    imports: list[Edge], changes: list[str]
):
    world = World()
    files = rendered(imports)
    assert deploy(world, files) == dict.fromkeys(WORKFLOWS, 1)
    expected = dict.fromkeys(WORKFLOWS, 1)
    bundles = dict.fromkeys(WORKFLOWS, bundle_ref(TENANT, pack_bundle(files)))
    for number, changed in enumerate(changes):
        files = tuple(
            structs.replace(file, content=file.content + b"# fix %d\n" % number) if file.name == changed else file
            for file in files
        )
        for name in WORKFLOWS:
            if changed in reached(name, imports):
                expected[name] += 1
                bundles[name] = bundle_ref(TENANT, pack_bundle(files))
        assert deploy(world, files) == expected
        # Deployed again, nothing has changed.
        assert deploy(world, files) == expected
    for name in WORKFLOWS:
        assert bundle_in(world, Path(name).stem) == bundles[name]
    # What was deployed first is the first version again.
    assert deploy(world, rendered(imports)) == dict.fromkeys(WORKFLOWS, 1)


def bundle_in(world: World, workflow: str) -> BlobRef | None:
    """The bundle that new runs of a workflow are given."""
    return world.state.graphs[(TENANT, world.state.workflows[(TENANT, workflow)].graph)].graph.bundle


def used(files: dict[str, str], start: str = "w.py") -> set[str]:
    return set(Dependencies(BundleFile(name, text.encode()) for name, text in files.items()).of([start]))


OTHERS = {"other.py": "", "p/__init__.py": "", "p/x.py": "", "p/y.py": "import other", "deep/z.py": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("'''See other.py and p.x'''", ()),
        ("import other", ("other.py",)),
        ("import p.x", ("p/__init__.py", "p/x.py")),
        ("import p\np.x.run()", ("p/__init__.py", "p/x.py")),
        ("import p as q\nq.y.run()", ("p/__init__.py", "p/y.py", "other.py")),
        ("from p import *", ("p/__init__.py",)),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import other", ("other.py",)),
        # Names in texts.
        ("use('p.x:main')", ("p/__init__.py", "p/x.py")),
        ("use('other:main')", ("other.py",)),
        ("use('deep.z.Class')", ("deep/z.py",)),
        ("open('other.py')", ("other.py",)),
        ("open('deep/z.py')", ("deep/z.py",)),
        ("from pathlib import Path\nPath(__file__).with_name('other.py').read_text()", ("other.py",)),
        ("from pathlib import Path\nPath('sql').glob('*.sql')", ()),
        ("import re\nre.compile('x')", ()),
        ("use('other')", ("other.py",)),
        ("Celery(include=['other'])", ("other.py",)),
        ("use('p')", ("p/__init__.py",)),
        ("use('deep')", ()),
        ("use('the other')", ()),
        ("use('others')", ()),
        ("'other'", ()),
        ("import numpy as np\nnp.load(path)\nnp.load(path, allow_pickle=False)", ()),
        ("import json\njson.load(file)", ()),
    ],
)
def test_names_in_code_and_in_texts_are_followed(text: str, expected: tuple[str, ...]):
    assert used({"w.py": text, **OTHERS}) == {"w.py", *expected}


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module(name)",
        "from importlib import import_module",
        "import importlib.util as util",
        "__import__(name)",
        "getattr(thing, '__import__')",
        "import runpy",
        "exec(text)",
        "eval(text)",
        "compile(text, 'x', 'exec')",
        "import pkgutil",
        "import sys\nsys.path.append('lib')",
        "from sys import path",
        "import sys\nsys.modules['x']",
        "import sys as system_module\nsystem_module.path.insert(0, 'lib')",
        "import subprocess",
        "import os\nos.system('x')",
        "from os import execvp",
        "import asyncio\nasyncio.create_subprocess_exec('x')",
        "import pickle",
        "import pandas\npandas.read_pickle(path)",
        "import pydoc\npydoc.locate(name)",
        "from pydoc import locate\nlocate(name)",
        "from werkzeug.utils import import_string\nimport_string(name)",
        "from django.utils import module_loading\nmodule_loading.import_string(name)",
        "import torch\ntorch.load(path)",
        "import torch as t\nt.load(path, weights_only=False)",
        "from torch import load",
        "import torch\ntorch.hub.load('.', 'model', source='local')",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import numpy as np\nnp.load(path, allow_pickle=allowed)",
        "from numpy import load\nload(path, None, True)",
        "import numpy\nnumpy.load(path, **options)",
        "import numpy\nnumpy.load(*arguments)",
        "import os\nos.listdir('.')",
        "from pathlib import Path\nPath().iterdir()",
        "from pathlib import Path\nPath().glob(pattern)",
        "from pathlib import Path\nPath().glob('*.py')",
        "from pathlib import Path\nPath().glob('*')",
        "import glob\nglob.glob('plugins/*.p?')",
        "open(f'{name}.py')",
        "open('gone.py')",
        "this cannot be parsed",
    ],
)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_code_that_may_use_any_file_depends_on_all_of_them_however_far_away_it_is(text: str, depth: int):
    chain = {f"c{number}.py": f"import c{number + 1}" for number in range(depth)}
    files = {"w.py": "import c0", **chain, f"c{depth}.py": text, **OTHERS}
    assert used(files) == set(files)
    # Code that does not use it is spared.
    assert used({**files, "v.py": "import other"}, "v.py") == {"v.py", "other.py"}


def test_a_submodule_that_a_package_names_for_a_starred_import_is_imported():
    files = {"w.py": "from p import *", **OTHERS, "p/__init__.py": "__all__ = ['x']"}
    assert used(files) == {"w.py", "p/__init__.py", "p/x.py"}


def test_files_that_are_not_python_and_what_configuration_names_count_for_every_workflow():
    files = {"w.py": "", "v.py": "", **OTHERS, "a.sql": "p.x", "b.yaml": "handler: p.x.Handler", "c.so": ""}
    common = {"a.sql", "b.yaml", "c.so", "p/__init__.py", "p/x.py"}
    assert used(files) == {"w.py", *common}
    assert used(files, "v.py") == {"v.py", *common}


def test_a_workflow_with_a_command_and_one_that_loaded_more_depend_on_that_too():
    files = tuple(BundleFile(name, text.encode()) for name, text in {"w.py": "", **OTHERS}.items())
    sources = Sources(Path(), files, ("w.py",))
    plain = Compiled(graph=Graph(name="w", tasks=(TaskSpec(id="t", kind="python"),)), source="w.py:1")
    command = structs.replace(plain, graph=Graph(name="w", tasks=(TaskSpec(id="t", kind="command"),)))
    loaded = structs.replace(plain, loaded=("w.py", "p/y.py"))
    codes = [each.code for each in with_code((plain, command, loaded), sources)]
    dependencies = Dependencies(files)
    expected = (("w.py",), tuple(sorted(file.name for file in files)), ("other.py", "p/__init__.py", "p/y.py", "w.py"))
    assert codes == [dependencies.digest(names) for names in expected]


def test_a_digest_has_names_contents_and_modes_of_files_in_any_order():
    files = [BundleFile("a.py", b"1"), BundleFile("b.sh", b"2", is_executable=True)]
    total = Dependencies(files).digest(("a.py", "b.sh"))
    assert Dependencies(files[::-1]).digest(Dependencies(files[::-1]).of(["a.py"])) == total
    others = (
        [BundleFile("a.py", b"x"), files[1]],
        [files[0], BundleFile("b.sh", b"2")],
        [BundleFile("c.py", b"1"), files[1]],
    )
    digests = [Dependencies(each).digest(sorted(file.name for file in each)) for each in others]
    assert len({total, *digests}) == 4


def test_a_long_text_takes_no_longer_than_its_length():
    chance = random.Random(1)
    text = "".join(chance.choices("abcdef.:", k=400_000)) + "x" * 400_000
    assert used({"w.py": f"use({text!r})", **OTHERS}) == {"w.py"}
