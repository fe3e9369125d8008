"""The way to whoever leads, among several coordinators that are known by their addresses."""

from rota.config import read_target
from rota.core.errors import Refused, Unavailable
from rota.wire.places import Place
from rota.wire.streams import OPEN_S, Stream, open_stream

# From one that follows to the one that leads; more than one step only while they change places.
HOPS_MAX = 3
# How long one of several may take to let us in: there are others to ask.
OPEN_ONE_OF_SEVERAL_S = 3.0


class Route:
    """Where a coordinator may be found.

    Whoever let us in last is asked last the next time: it was lost for a reason. One that follows names the one that
    leads, which is believed as far as it is spoken to in the same way: nobody is talked out of TLS.
    """

    def __init__(self, first: Place, *others: Place) -> None:
        self._places = [first, *others]

    @property
    def url(self) -> str:
        """How it is shown."""
        return ",".join(place.url for place in self._places)

    async def open(self, method: str, token: str, tenant: str = "") -> Stream:
        """Dial until somebody lets us in. Raises Refused if all of them refuse, else Unavailable."""
        away: Unavailable | None = None
        refused: Refused | None = None
        for place in list(self._places):
            try:
                stream = await self._follow(place, method, token, tenant)
            except Unavailable as unavailable:
                # That somebody leads elsewhere says more than that somebody else is away.
                if away is None or away.code != "leader.elsewhere":
                    away = unavailable
            except Refused as refusal:
                # One that has an old certificate, or not the newest tokens, must not keep us from the others.
                refused = refused or refusal
            else:
                if stream.place in self._places:
                    self._places.remove(stream.place)
                    self._places.append(stream.place)
                return stream
        if refused is None:
            assert away is not None, "there is at least one place"
            raise away
        if away is None:
            raise refused
        text = f"{away.reason} Another one refuses: {refused}"
        raise Unavailable(away.code, text, retry_after_ms=away.retry_after_ms)

    async def _follow(self, place: Place, method: str, token: str, tenant: str) -> Stream:
        within_s = OPEN_S if len(self._places) == 1 else OPEN_ONE_OF_SEVERAL_S
        said: Unavailable | None = None
        for _ in range(HOPS_MAX):
            try:
                return await open_stream(place, method, token, tenant, within_s)
            except Unavailable as unavailable:
                if said is not None and not unavailable.grpc:
                    text = f"{said.reason} It was not reached: {unavailable.reason}"
                    raise Unavailable("leader.elsewhere", text, retry_after_ms=unavailable.retry_after_ms) from None
                said = unavailable
                there = _place_like(place, unavailable.grpc)
                if there is None or there == place:
                    raise
                place = there
        assert said is not None, "at least one was asked"
        raise said


def _place_like(place: Place, url: str) -> Place | None:
    """Another address, spoken to as this one is; None if that cannot be done."""
    if not url:
        return None
    try:
        target = read_target(url, "leader")
    except Refused:
        return None
    if target.tls != (place.tls is not None):
        return None
    return Place(url, str(target.address), place.tls)
