"""A plugin for pytest that writes down every test that is collected, with its marks: one line of JSON each.

`python -m pytest --collect-only -p tests.tidy.collected`, with ROTA_COLLECTED naming the file.
"""

import json
import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    with Path(os.environ["ROTA_COLLECTED"]).open("w", encoding="utf-8") as file:
        for item in items:
            marks = sorted({mark.name for mark in item.iter_markers()})
            file.write(json.dumps([item.nodeid, str(item.path), marks]) + "\n")
