"""Handing in one work item from a program that does nothing else with Rota."""

import os
from typing import Any

from rota.app import DEFAULT_FOLDER
from rota.app.embedded import Rota
from rota.app.remote import COORDINATOR


def submit_work(title: str, payload: Any = None, *, data: str = DEFAULT_FOLDER, **about: Any) -> str:
    """Make a work item where `ROTA_COORDINATOR` says, else in the data folder; the answer is its id.

    `about` is what `Rota.submit_work` takes. A program that makes many keeps a `Rota` open instead.
    """
    there = Rota.connect() if os.environ.get(COORDINATOR) else Rota.open(data)
    with there as rota:
        return rota.submit_work(title, payload, **about).id
