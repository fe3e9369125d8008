"""Which coordinator a command is about: that of a data folder, or one elsewhere."""

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rota import app
from rota.app import DEFAULT_FOLDER
from rota.cli.choices import COORDINATOR

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.config import Config

FOLDER_HELP = f"the data folder (default {DEFAULT_FOLDER}, here or in a folder above)"


def add_place(parser: argparse.ArgumentParser) -> None:
    """The options that say where runs are."""
    places = parser.add_mutually_exclusive_group()
    places.add_argument("--data", metavar="DIR", help=FOLDER_HELP)
    text = f"a coordinator elsewhere, such as grpc://host:7433 (default ${COORDINATOR}, unless --data is given)"
    places.add_argument("--coordinator", metavar="URL", help=text)


def elsewhere(options: argparse.Namespace) -> str:
    """The URL of the coordinator, if it is not that of a folder."""
    from rota.config import load_config

    if options.coordinator or options.data is not None:
        return options.coordinator or ""
    return load_config(env=os.environ).client.coordinator


def reach(options: argparse.Namespace) -> "Rota":
    """A client for whatever was named."""
    url = elsewhere(options)
    return app.Rota.connect(url) if url else app.Rota.open(folder_of(options))


def reach_or_make(options: argparse.Namespace) -> "Rota":
    """The same; a data folder that is not there yet is made."""
    if elsewhere(options) or (Path(folder_of(options)) / "rota.db").exists():
        return reach(options)
    return app.Rota.embedded(folder_of(options), slots=0)


def folder_of(options: argparse.Namespace) -> str:
    """The data folder that was named, or else the one that is found."""
    return find_folder() if options.data is None else options.data


def find_folder() -> str:
    """`.rota` with data in it, here or in the nearest folder above, as git finds `.git`; `.rota` here if there is none.

    One above counts only if it is this user's: results in it may be pickled, and anybody can put a folder into /tmp.
    """
    here = Path.cwd()
    for above in (here, *here.parents):
        found = above / DEFAULT_FOLDER
        try:
            (found / "rota.db").stat()
            if above == here or found.lstat().st_uid == os.geteuid():
                return os.path.relpath(found, here)
        except OSError:
            continue
    return DEFAULT_FOLDER


def configured_folder(config: "Config") -> str:
    """The data folder that the settings name, or else the one that is found."""
    return config.server.data if "server.data" in config.sources else find_folder()


def again(options: argparse.Namespace) -> str:
    """What to type so that another command is about the same place."""
    url = elsewhere(options)
    return shlex.join(["--coordinator", url] if url else ["--data", folder_of(options)])
