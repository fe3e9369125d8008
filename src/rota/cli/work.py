"""`rota work`: items for agents and people's own workers; make them, see them, and deal with those that are stuck."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.cli import EXIT_FAILED
from rota.cli.choices import APPROVALS, CLAIM_LEASE_S, ITEM_ACTIONS, ITEM_ATTEMPTS, ITEM_PRIORITIES
from rota.cli.given import count, date
from rota.cli.reaching import reach, reach_or_make
from rota.cli.showing import finish, put, put_json, put_table, say, show_time
from rota.core.errors import Refused

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.client.blocking_items import BlockingClaim, BlockingItem
    from rota.wire.items import ItemView


TOKEN = "ROTA_CLAIM_TOKEN"  # noqa: S105 - the name of a variable
STDIN = "-"

EXAMPLES = """
  rota work submit "Review the guide" --payload '{"page": "agents.md"}' --requires review --workspace docs
  rota work list --state queued
  rota work show work-1f2e3d4c
  rota work approve work-1f2e3d4c work-5a6b7c8d
  rota work reject work-1f2e3d4c --reason "not now"
  rota work cancel work-1f2e3d4c
  rota work release work-1f2e3d4c
  rota work fail work-1f2e3d4c --reason "cannot be done"
  rota work retry work-1f2e3d4c
  rota work pause work-1f2e3d4c
  rota work resume work-1f2e3d4c
  rota work requeue work-1f2e3d4c --requires review,python
  rota work claim --session me --workspace docs --capability review --wait 30
  rota work renew work-1f2e3d4c --session me --fence 1099511627777 --token-file token
  ROTA_CLAIM_TOKEN=… rota work complete work-1f2e3d4c --session me --fence 1099511627777 --result '{"words": 812}'
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its verbs, each with its options."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, summary: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        described = verbs.add_parser(name, help=summary, description=summary)
        finish(described, run)
        return described

    _describe_submit(verb("submit", "make an item", submit))
    listed = verb("list", "list items, the newest first", list_items)
    listed.add_argument("--workspace", default="", metavar="NAME", help="only those of this workspace")
    listed.add_argument("--state", action="append", default=[], metavar="STATE", help="only those in this state")
    listed.add_argument("--limit", type=count, default=50, metavar="N", help="how many (default 50)")
    verb("show", "show one item, and why nobody has it", show).add_argument("item", metavar="ITEM", help="which item")
    for name, summary in _ACTIONS.items():
        acting = verb(name, summary, act)
        acting.add_argument("items", nargs="+", metavar="ITEM", help="which ones, at most 50")
        if name in ("approve", "reject", "cancel", "release", "fail"):
            needed = name == "fail"
            acting.add_argument("--reason", default="", required=needed, metavar="TEXT", help="why; the audit keeps it")
    requeue = verb("requeue", "let a parked item wait again, perhaps with other requirements", resolve)
    _describe_requeue(requeue)
    claimed = verb("claim", "claim work as a session", claim)
    _describe_claim(claimed)
    for name, summary in (("renew", "keep a claim"), ("complete", "say that a claimed item is done")):
        held = verb(name, summary, speak)
        held.add_argument("item", metavar="ITEM", help="which item")
        held.add_argument("--session", required=True, metavar="ID", help="the session that holds it")
        held.add_argument("--fence", required=True, type=int, metavar="N", help="the claim's fence")
        # Not as an option of its own: other users of the machine see what is typed.
        text = f"a file with the claim's token, - for stdin (default ${TOKEN})"
        held.add_argument("--token-file", default="", metavar="FILE", help=text)
        if name == "renew":
            held.add_argument(
                "--lease", type=float, default=0, metavar="SECONDS", help="for how long (as it was claimed)"
            )
        else:
            held.add_argument("--result", type=_json, default=None, metavar="JSON", help="what came of it")


_ACTIONS = {
    "approve": "let items that wait for a person go on",
    "reject": "end items that wait for a person",
    "cancel": "end items",
    "release": "take items from whoever has them, at no cost",
    "fail": "say that items have failed",
    "retry": "try items now, or again if they have failed",
    "pause": "let nobody claim items",
    "resume": "let items be claimed again",
}
assert set(_ACTIONS) | {"requeue"} == set(ITEM_ACTIONS), "whatever can be done about several has a verb"


def _describe_submit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("title", metavar="TITLE", help="what is to be done, in a line")
    parser.add_argument("--payload", type=_json, default=None, metavar="JSON", help="what goes along, at most 64 KiB")
    parser.add_argument("--requires", type=_names, default=(), metavar="A,B", help="capabilities it cannot do without")
    parser.add_argument("--prefers", type=_names, default=(), metavar="A,B", help="capabilities that are welcome")
    parser.add_argument("--priority", choices=ITEM_PRIORITIES, default="medium", help="how urgent (medium)")
    parser.add_argument("--workspace", default="", metavar="NAME", help="only for sessions of this workspace")
    parser.add_argument("--channel", default="", metavar="NAME", help="only for sessions on this channel")
    parser.add_argument("--owner", default="", metavar="WHO", help="pool:AGENT or session:ID")
    parser.add_argument("--depends-on", action="append", default=[], metavar="ITEM", help="has to succeed first")
    parser.add_argument("--approval", choices=APPROVALS, default="none", help="whether a person approves first")
    text = f"how often it is tried (default {ITEM_ATTEMPTS})"
    parser.add_argument("--max-attempts", type=int, default=ITEM_ATTEMPTS, metavar="N", help=text)
    parser.add_argument("--deadline", type=date, default=None, metavar="DATE", help="when it fails if it has not ended")
    parser.add_argument("--key", default="", metavar="KEY", help="the same key again makes no second item")


def _describe_requeue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("item", metavar="ITEM", help="which item")
    parser.add_argument("--requires", type=_names, metavar="A,B", help="instead of what it required; '' for nothing")
    parser.add_argument("--prefers", type=_names, metavar="A,B", help="instead of what it preferred")
    parser.add_argument("--channel", metavar="NAME", help="instead of its channel; '' for none")
    parser.add_argument("--owner", metavar="WHO", help="instead of its owner; '' for none")


def _describe_claim(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--session", required=True, metavar="ID", help="as which session; it is registered")
    parser.add_argument("--agent", default="", metavar="NAME", help="the agent's name, which work may ask for")
    parser.add_argument("--workspace", default="", metavar="NAME", help="where it works")
    parser.add_argument("--channel", default="", metavar="NAME", help="its channel")
    parser.add_argument("--capability", action="append", default=[], metavar="NAME", help="what it can do")
    parser.add_argument("--limit", type=count, default=1, metavar="N", help="how many at once")
    parser.add_argument("--priority", choices=ITEM_PRIORITIES, default="low", help="none less urgent than this (low)")
    parser.add_argument("--item", default="", metavar="ITEM", help="only this one")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="SECONDS", help="how long to wait for some, at most 60"
    )
    parser.add_argument(
        "--lease", type=float, default=CLAIM_LEASE_S, metavar="SECONDS", help=f"for how long (default {CLAIM_LEASE_S})"
    )
    parser.add_argument("--key", default="", metavar="KEY", help="the same key again is the same claim")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not JSON: {error}") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def submit(options: argparse.Namespace) -> int:
    """Make an item."""
    from rota.wire.agent_views import show_item

    names = (
        "requires",
        "prefers",
        "priority",
        "workspace",
        "channel",
        "owner",
        "depends_on",
        "approval",
        "max_attempts",
        "deadline",
        "key",
    )
    with reach_or_make(options) as rota:
        item = rota.submit_work(options.title, options.payload, **{name: getattr(options, name) for name in names})
        view = item.status()
    if options.json:
        put_json(show_item(view))
    else:
        put(view.item)
    return 0


def list_items(options: argparse.Namespace) -> int:
    """List them."""
    from rota.wire.agent_views import show_item

    with reach(options) as rota:
        found = rota.items(workspace=options.workspace, states=options.state, limit=options.limit)
    if options.json:
        put_json([show_item(view) for view in found])
    elif not found:
        say("no items: make one with `rota work submit TITLE`")
    else:
        put_table(
            ("ITEM", "STATE", "PRIORITY", "WORKSPACE", "CREATED", "SESSION", "TITLE"),
            (
                (
                    view.item,
                    _state(view),
                    str(view.priority),
                    view.workspace,
                    show_time(view.created_at),
                    view.session,
                    view.title,
                )
                for view in found
            ),
        )
    return 0


def _state(view: "ItemView") -> str:
    if view.approval == "pending" and not view.ended_at:
        return "approval?"
    return f"{view.state} (paused)" if view.paused and not view.ended_at else view.state


def show(options: argparse.Namespace) -> int:
    """Show one."""
    from rota.wire.agent_views import show_item

    with reach(options) as rota:
        item = rota.item(options.item)
        view = item.status()
        reasons = () if view.ended_at else item.why()
    shown = show_item(view)
    if options.json:
        put_json({**shown, "why": [{"code": each.code, "text": each.text} for each in reasons]})
        return 0
    for name, value in shown.items():
        if value and value != "0":
            put(f"{name:13} {_shown(name, value)}")
    for each in reasons:
        put(f"{'waits':13} {each.code}: {each.text}")
    return 0


def _shown(name: str, value: Any) -> str:
    if name.endswith("_at"):
        return show_time(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def act(options: argparse.Namespace) -> int:
    """Do the same about one or several; what was refused is said for each."""
    with reach(options) as rota:
        outcomes = rota.bulk(options.verb, options.items, reason=getattr(options, "reason", ""))
        views = {each.item: rota.item(each.item).status() for each in outcomes if each.done}
    if options.json:
        put_json(outcomes)
    else:
        for each in outcomes:
            if each.done:
                put(f"{each.item} is {_state(views[each.item])}")
            else:
                say(f"rota: {each.item}: {each.error}")
    return 0 if all(each.done for each in outcomes) else EXIT_FAILED


def resolve(options: argparse.Namespace) -> int:
    """Let a parked item wait again."""
    with reach(options) as rota:
        item = rota.item(options.item)
        names = ("requires", "prefers", "channel", "owner")
        item.requeue(**{name: getattr(options, name) for name in names if getattr(options, name) is not None})
        return _put_item(options, item)


def _put_item(options: argparse.Namespace, item: "BlockingItem") -> int:
    from rota.wire.agent_views import show_item

    view = item.status()
    if options.json:
        put_json(show_item(view))
    else:
        put(f"{view.item} is {_state(view)}")
    return 0


def claim(options: argparse.Namespace) -> int:
    """Claim as a session that lasts as long as the claim does: this program ends, and gives no sign of life."""
    with reach(options) as rota:
        session = _session(
            rota,
            options,
            agent=options.agent,
            workspace=options.workspace,
            channel=options.channel,
            capabilities=options.capability,
            limit=options.limit,
            silence_ms=round(max(options.lease, options.wait + 1) * 1000),
        )
        session.register()
        claims = session.claim(
            wait_s=options.wait,
            limit=options.limit,
            lease_s=options.lease,
            priority=options.priority,
            item=options.item,
            key=options.key,
        )
    if options.json:
        put_json([_plain(each) for each in claims])
    elif not claims:
        say("there is nothing to claim; `rota scheduler backlog` shows what waits, and why")
    else:
        for each in claims:
            put(f"{each.item} fence={each.fence} token={each.token} until {show_time(each.expires_at)}: {each.title}")
    return 0


def _session(rota: "Rota", options: argparse.Namespace, **about: Any) -> Any:
    """The session of that name. All commands speak for one incarnation of it."""
    return rota.agent_session(options.session, incarnation=options.session, **about)


def _plain(claim: "BlockingClaim") -> dict[str, Any]:
    return {
        "item": claim.item,
        "title": claim.title,
        "payload": claim.payload,
        "labels": claim.labels,
        "fence": str(claim.fence),
        "token": claim.token,
        "attempt": claim.attempt,
        "deliveries": claim.deliveries,
        "expires_at": claim.expires_at,
        "deadline_at": claim.deadline_at,
    }


def speak(options: argparse.Namespace) -> int:
    """Keep a claim, or say that it is done."""
    token = _token(options)
    with reach(options) as rota:
        session = _session(rota, options)
        if options.verb == "renew":
            until = session.renew_claim(options.item, options.fence, token, options.lease)
            put_json({"expires_at": until}) if options.json else put(f"{options.item} is held until {show_time(until)}")
            return 0
        session.complete_claim(options.item, options.fence, token, options.result)
        return _put_item(options, rota.item(options.item))


def _token(options: argparse.Namespace) -> str:
    if options.token_file == STDIN:
        return sys.stdin.readline().strip()
    if options.token_file:
        return Path(options.token_file).read_text(encoding="utf-8").strip()
    found = os.environ.get(TOKEN, "")
    if not found:
        hint = f"Set {TOKEN}, or name a file with --token-file."
        raise Refused("lease.token", "the claim's token is not given", hint, path="token")
    return found
