"""The example of a build, as its reader would run it."""

import shutil
from pathlib import Path

import pytest

from tests.integration.builds.clients.bazel import open_bazel
from tests.integration.builds.clients.service import Service

EXAMPLE = Path(__file__).parents[4] / "examples" / "bazel"

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("bazel")]


@pytest.mark.long
def test_the_example_is_built_and_then_found(shared: Service, tmp_path: Path) -> None:
    place = shutil.copytree(EXAMPLE, tmp_path / "example")
    settings = place / ".bazelrc"
    settings.write_text(settings.read_text().replace("127.0.0.1:8980", f"127.0.0.1:{shared.port}"))
    with open_bazel(tmp_path, place) as bazel:
        here = ("--nosandbox_debug", "--symlink_prefix=/", shared.new_instance())
        assert bazel.run("build", "//...", *here).well().carried_out == 3
        total = tmp_path / "base/execroot/example/bazel-out/k8-fastbuild/bin/total.txt"
        assert total.read_text() == "11\n"
        bazel.clean()
        assert bazel.run("build", "//...", *here).well().found == 3
