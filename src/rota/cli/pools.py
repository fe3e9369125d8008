"""`rota pools`: limits on what runs at once; see, define and remove them."""

import argparse
from typing import TYPE_CHECKING

from rota.cli import EXIT_USAGE
from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, put_table, say
from rota.cli.verbs import add_verbs, is_clear

if TYPE_CHECKING:
    from rota.app import Rota

EXAMPLES = """
  rota pools
  rota pools set warehouse --slots 4
  rota pools set vendor --per-minute 60 --burst 10
  rota pools drop warehouse
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_verbs(parser, ("set", "drop"), "NAME")
    parser.add_argument("--slots", type=int, metavar="N", help="how many tasks at once; 0 means any number")
    parser.add_argument("--per-key", type=int, metavar="N", help="how many at once for one key")
    parser.add_argument("--per-minute", type=int, metavar="N", help="how many may start in a minute")
    parser.add_argument("--burst", type=int, metavar="N", help="how many of those may start together")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List pools, or change one."""
    from rota.wire.views import as_plain

    if not is_clear(options):
        return EXIT_USAGE
    with reach(options) as rota:
        if options.verb == "set":
            _set(rota, options)
        elif options.verb == "drop":
            rota.drop_pool(options.name)
        pools = [view for view in rota.pools() if options.name in ("", view.pool.name)]
    if options.json:
        put_json([as_plain(each) for each in pools])
    elif options.verb == "drop":
        put(f"pool {options.name} is removed")
    elif not pools:
        say("no pools: define one with `rota pools set NAME --slots N`")
    else:
        put_table(
            ("POOL", "TAKEN", "SLOTS", "PER KEY", "PER MINUTE"),
            (
                (
                    view.pool.name,
                    str(view.taken),
                    str(view.pool.slots or "any"),
                    str(view.pool.slots_per_key or "any"),
                    str(view.pool.starts_per_minute or "any"),
                )
                for view in pools
            ),
        )
    return 0


def _set(rota: "Rota", options: argparse.Namespace) -> None:
    """What is not named stays as it is: whoever tightens one limit does not mean to lift another."""
    from msgspec import structs

    from rota.core.model import Pool

    known = {view.pool.name: view.pool for view in rota.pools()}.get(options.name, Pool(tenant="", name=options.name))
    given = {
        "slots": options.slots,
        "slots_per_key": options.per_key,
        "starts_per_minute": options.per_minute,
        "burst": options.burst,
    }
    pool: Pool = structs.replace(known, **{name: value for name, value in given.items() if value is not None})
    rota.put_pool(
        pool.name,
        pool.slots,
        slots_per_key=pool.slots_per_key,
        starts_per_minute=pool.starts_per_minute,
        burst=pool.burst,
    )
