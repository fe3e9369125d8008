"""`rota tenants`: whose work it is, and how large a share each has."""

import argparse

from rota.cli import EXIT_USAGE
from rota.cli.reaching import reach
from rota.cli.showing import finish, put_json, put_table, say
from rota.cli.verbs import add_verbs, is_clear

EXAMPLES = """
  rota tenants
  rota tenants set research --weight 3
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_verbs(parser, ("set",), "TENANT")
    parser.add_argument("--weight", type=int, default=1, metavar="N", help="its share under load, 1 to 100 (default 1)")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List tenants, or give one its share."""
    from rota.wire.views import as_plain

    if not is_clear(options):
        return EXIT_USAGE
    with reach(options) as rota:
        if options.verb == "set":
            rota.put_tenant(options.name, options.weight)
        tenants = [tenant for tenant in rota.tenants() if options.name in ("", tenant.tenant)]
    if options.json:
        put_json([as_plain(each) for each in tenants])
    elif not tenants:
        say("no tenant has a weight or a live run")
    else:
        put_table(("TENANT", "WEIGHT"), ((tenant.tenant, str(tenant.weight)) for tenant in tenants))
    return 0
