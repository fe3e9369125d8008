"""Every deed that pages offer: it has a place of its own, a role, a question, and a command that there is."""

import argparse
import shlex
from importlib import import_module

import pytest

from rota.api.auth import NEEDS
from rota.cli import COMMANDS
from rota.core.model import Pool
from rota.core.questions import PoolView
from rota.ui.acts.acting import Deed, Subject
from rota.ui.pages import DEEDS, Pages


def test_each_has_a_place_of_its_own_which_is_asked_and_acted_at():
    pages = Pages(version="1", is_open=True).pages
    for deed in DEEDS:
        assert [page.method for page in pages if page.path == deed.path] == ["GET", "POST"], deed.path
        assert deed.path.endswith(f"/{deed.name}")


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.path)
def test_each_takes_the_role_that_its_command_takes(deed: Deed):
    assert deed.command in NEEDS


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.path)
def test_what_is_done_by_one_click_needs_nothing_filled_in_and_is_not_grave(deed: Deed):
    if deed.is_direct:
        assert not deed.is_grave
        assert deed.form.__struct_fields__ == ("seal", "once", "seen")


def test_the_line_of_a_pool_is_one_that_the_terminal_reads():
    view = PoolView(pool=Pool(tenant="t", name="a b", slots=3), taken=0, by_key={})
    subject = Subject(name="pool", at="", url="", standing="", view=("a b", view))
    (setting,) = (deed for deed in DEEDS if deed.path == "/queues/pools/{pool}/set")
    rota, noun, *words = shlex.split(setting.line(subject, None))
    parser = argparse.ArgumentParser()
    import_module(COMMANDS[noun][0]).describe(parser)
    options = parser.parse_args(words)
    assert (rota, options.verb, options.name, options.slots) == ("rota", "set", "a b", 3)
