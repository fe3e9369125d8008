"""The http runner: requests that the worker sends itself. No process of the user's is involved, only an address."""

import asyncio
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import msgspec

from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.errors import Refused
from rota.core.model import FailureClass
from rota.ports import Blobs
from rota.wire.elements import Unforeseen
from rota.wire.values import PLAIN, is_plain
from rota.wire.web import check_request, check_url, origin, show_url
from rota.wire.work import HttpWork, Unprepared, decode_http, encode_value, plain, prepared_request
from rota.worker.logs.driver import LogShipper
from rota.worker.runners import Runner
from rota.worker.runners.egress import EgressPolicy, Forbidden
from rota.worker.runners.outcomes import failed
from rota.worker.runners.parcels import NotMoved, Parcels
from rota.worker.runners.preparing import NothingToDo, prepare
from rota.worker.runners.sequels import inline_bytes_max, widths
from rota.worker.sync import AttemptOver

if TYPE_CHECKING:
    from rota.worker.runners.fetching import Answer

RESPONSE_BYTES_MAX = 1_000_000
REDIRECTS_MAX = 5
SHOWN_CHARS = 500
_MOVED = (301, 302, 303, 307, 308)
# Meant for whom they were sent to, and for nobody else.
_PRIVATE = ("authorization", "cookie", "proxy-authorization")


class Refusal(Exception):
    """A request that must not be sent, or an answer that cannot be taken: trying again would not help."""


class HttpRunner:
    """Runs `http` work."""

    def __init__(self, blobs: Blobs, folder: Path, logs: LogShipper, policy: EgressPolicy, calls: Runner) -> None:
        """`calls` makes the calls that prepare requests."""
        self._calls = calls
        self._parcels = Parcels(blobs, folder / "scratch")
        self._logs = logs
        self._policy = policy
        self._trust: ssl.SSLContext | None = None

    async def run(self, offer: Offer) -> AttemptOver:
        """Send one request, and those it is redirected to; cancelling closes the connection."""
        try:
            work = decode_http(offer.work)
        except msgspec.MsgspecError as error:
            return failed(offer, FailureClass.FATAL, f"its work is not a request that can be read: {error}")
        if work.call is None:
            return await self._request(offer, work)
        with self._logs.held(self._logs.folder.place(offer)):
            try:
                given, left = await prepare(self._calls, offer, work.call)
                return await self._request(left, prepared_request(work, given))
            except Unprepared as error:
                return failed(offer, FailureClass.FATAL, f"its function gave no request: {error}")
            except NothingToDo as early:
                return early.over

    async def _request(self, offer: Offer, work: HttpWork) -> AttemptOver:
        lines: list[str] = []
        try:
            check_request(work)
            limit_ms = min(work.timeout_ms, offer.timeout_ms or work.timeout_ms)
            try:
                async with asyncio.timeout(limit_ms / 1_000):
                    answer = await self._ask(work, lines)
            except TimeoutError:
                return failed(offer, FailureClass.TIMEOUT, f"no answer within {limit_ms:,} ms")
            return await self._judge(offer, work, answer)
        except (Refused, Refusal, Forbidden, Unforeseen) as error:
            return failed(offer, FailureClass.FATAL, str(error))
        except NotMoved as error:
            return failed(offer, FailureClass.INTERNAL, str(error))
        except ConnectionError as error:
            return failed(offer, FailureClass.USER, str(error))
        finally:
            if lines:
                self._logs.write(self._logs.folder.place(offer), "".join(f"{line}\n" for line in lines))

    async def close(self) -> None:
        """Nothing is kept between requests."""

    async def _ask(self, work: HttpWork, lines: list[str]) -> "Answer":
        method, url, body, headers = work.method, work.url, work.body, list(work.headers)
        for _ in range(REDIRECTS_MAX + 1):
            answer = await self._ask_once(method, url, headers, body, lines)
            if answer.status in work.accepted or answer.status not in _MOVED or "location" not in answer.headers:
                return answer
            before = check_url(url)
            url = _moved_to(url, answer.headers["location"])
            if origin(check_url(url)) != origin(before):
                headers = [(name, value) for name, value in headers if name.lower() not in _PRIVATE]
            if answer.status == 303 or (answer.status in (301, 302) and method == "POST"):
                method, body = ("HEAD" if method == "HEAD" else "GET"), b""
                headers = [(name, value) for name, value in headers if not name.lower().startswith("content-")]
        raise Refusal(f"redirected more than {REDIRECTS_MAX} times")

    async def _ask_once(
        self, method: str, url: str, headers: list[tuple[str, str]], body: bytes, lines: list[str]
    ) -> "Answer":
        import httpcore  # with its kin a twentieth of a second, and most workers send no requests

        from rota.worker.runners.fetching import TooLarge, fetch

        if self._trust is None and url.startswith("https"):
            self._trust = await asyncio.to_thread(ssl.create_default_context)
        shown = show_url(check_url(url))
        began, what = time.monotonic(), "given up"
        try:
            answer = await fetch(
                method, url, headers, body, policy=self._policy, bytes_max=RESPONSE_BYTES_MAX, trust=self._trust
            )
            what = str(answer.status)
            return answer
        except TooLarge:
            what = "too large"
            raise Refusal(f"{shown} answers with more than {RESPONSE_BYTES_MAX:,} bytes") from None
        except Forbidden:
            what = "forbidden"
            raise
        except (httpcore.LocalProtocolError, httpcore.UnsupportedProtocol) as error:
            what = "not sent"
            raise Refusal(f"the request cannot be sent: {error}") from error
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            what = type(error).__name__
            raise ConnectionError(f"{shown} cannot be asked: {type(error).__name__}: {error}") from error
        finally:
            lines.append(f"{method} {shown} {what} {round((time.monotonic() - began) * 1_000)} ms")

    async def _judge(self, offer: Offer, work: HttpWork, answer: "Answer") -> AttemptOver:
        if answer.status not in work.accepted:
            text = answer.body[: 4 * SHOWN_CHARS].decode(errors="replace")[:SHOWN_CHARS]
            accepted = ", ".join(map(str, work.accepted))
            error = f"answered {answer.status}, which is not among those accepted ({accepted})"
            return failed(offer, FailureClass.USER, f"{error}\n{text}" if text else error)
        given = value_of(answer)
        expands = widths(work.maps, given) if work.maps else ()
        value = plain(given)
        result = encode_value(value)
        is_shared = bool(work.maps) or offer.map_index >= 0
        if len(value.content) > inline_bytes_max(is_shared=is_shared):
            result = await self._parcels.publish(offer, PLAIN, value.content)
        return AttemptOver(offer.fence, Outcome.SUCCESS, result, expands=expands)


def _moved_to(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        raise Refusal(f"it was sent on to {location[:200]!r}, which is no address") from None


def value_of(answer: "Answer") -> Any:
    """What a task gives that was answered: what the JSON says, a text, or bytes; None if there is nothing."""
    if not answer.body:
        return None
    kind, _, parameters = answer.headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            value = msgspec.json.decode(answer.body)
            if is_plain(value):
                return value
        except (msgspec.DecodeError, RecursionError):
            # It is not what it says, or cannot be kept as it is; the text can.
            pass
        return answer.body.decode(errors="replace")
    if not kind.startswith("text/"):
        return answer.body
    charset = parameters.partition("charset=")[2].partition(";")[0].strip().strip("\"'") or "utf-8"
    try:
        text = answer.body.decode(charset, errors="replace")
        # Some ways to write text can say half characters, which could not be stored.
        text.encode()
        return text
    except (LookupError, UnicodeError, ValueError):
        return answer.body.decode(errors="replace")
