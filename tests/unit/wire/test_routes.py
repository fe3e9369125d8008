"""Finding whoever leads among several addresses."""

from typing import Any

import pytest

from rota.config import ClientTls
from rota.core.errors import Refused, Unavailable
from rota.wire import routes
from rota.wire.places import Place
from rota.wire.routes import Route

TLS = ClientTls(ca=None, cert=None, key=None)


def at(name: str, tls: ClientTls | None = None) -> Place:
    return Place(f"{'grpcs' if tls else 'grpc'}://{name}:7433", f"{name}:7433", tls)


class Opened:
    """A stream, as far as a route looks at one."""

    def __init__(self, place: Place) -> None:
        self.place = place


class World:
    """Who answers what, and who was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.says: dict[str, Refused | Unavailable] = {}
        self.asked: list[str] = []
        self.patience: list[float] = []
        monkeypatch.setattr(routes, "open_stream", self._open)

    async def _open(self, place: Place, method: str, token: str, tenant: str, within_s: float) -> Any:
        self.asked.append(place.url)
        self.patience.append(within_s)
        trouble = self.says.get(place.address.partition(":")[0])
        if trouble is not None:
            raise trouble
        return Opened(place)


def elsewhere(url: str) -> Unavailable:
    return Unavailable("leader.elsewhere", f"it is at {url}.", grpc=url)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def opened(route: Route) -> str:
    return (await route.open("Talk", "token")).place.url


def run(coroutine: Any) -> Any:
    """Nothing is waited for, so one step is enough."""
    try:
        coroutine.send(None)
    except StopIteration as over:
        return over.value
    raise AssertionError("it waits for something")


def test_one_that_is_away_is_passed_over(world: World):
    world.says["a"] = Unavailable("leader.none", "nobody answers.")
    assert run(opened(Route(at("a"), at("b")))) == "grpc://b:7433"


def test_whoever_let_us_in_last_is_asked_last(world: World):
    route = Route(at("a"), at("b"))
    assert [run(opened(route)) for _ in range(3)] == ["grpc://a:7433", "grpc://b:7433", "grpc://a:7433"]


def test_whoever_follows_is_believed_also_about_an_address_that_was_not_known(world: World):
    world.says["a"] = elsewhere("grpc://c:7433")
    route = Route(at("a"))
    assert run(opened(route)) == "grpc://c:7433"
    assert route.url == "grpc://a:7433", "what is known is what was configured"


def test_nobody_is_talked_out_of_tls(world: World):
    world.says["a"] = elsewhere("grpc://c:7433")
    with pytest.raises(Unavailable, match=r"leader\.elsewhere"):
        run(opened(Route(at("a", TLS))))
    assert world.asked == ["grpcs://a:7433"]


def test_the_certificates_of_one_are_used_for_the_other(world: World):
    world.says["a"] = elsewhere("grpcs://c:7433")
    stream = run(Route(at("a", TLS)).open("Talk", "token"))
    assert stream.place == at("c", TLS)


def test_a_leader_that_is_not_reached_is_named(world: World):
    world.says.update(a=elsewhere("grpc://c:7433"), c=Unavailable("leader.none", "nobody at c."))
    with pytest.raises(Unavailable) as caught:
        run(opened(Route(at("a"))))
    assert caught.value.code == "leader.elsewhere"
    assert "grpc://c:7433" in caught.value.reason and "nobody at c." in caught.value.reason


def test_two_that_take_each_other_for_the_leader_are_not_asked_for_ever(world: World):
    world.says.update(a=elsewhere("grpc://b:7433"), b=elsewhere("grpc://a:7433"))
    with pytest.raises(Unavailable, match=r"leader\.elsewhere"):
        run(opened(Route(at("a"), at("b"))))
    assert len(world.asked) == 2 * routes.HOPS_MAX


@pytest.mark.parametrize("url", ["", "grpc://a:7433", "not a url", "http://c:1"])
def test_an_address_that_leads_nowhere_new_is_not_followed(world: World, url: str):
    world.says["a"] = elsewhere(url)
    with pytest.raises(Unavailable):
        run(opened(Route(at("a"))))
    assert world.asked == ["grpc://a:7433"]


def test_one_that_refuses_does_not_keep_us_from_the_others(world: World):
    world.says["a"] = Refused("tls.handshake", "its certificate has expired")
    assert run(opened(Route(at("a"), at("b")))) == "grpc://b:7433"


def test_what_all_of_them_refuse_is_refused(world: World):
    world.says.update(a=Refused("auth.wrong", "not accepted"), b=Refused("auth.wrong", "not accepted either"))
    with pytest.raises(Refused, match=r"not accepted$"):
        run(opened(Route(at("a"), at("b"))))


def test_while_one_is_away_what_another_refuses_is_told_and_tried_again(world: World):
    world.says.update(a=Refused("auth.wrong", "not accepted"), b=Unavailable("leader.none", "nobody answers at b."))
    with pytest.raises(Unavailable) as caught:
        run(opened(Route(at("a"), at("b"))))
    assert (caught.value.code, "not accepted" in caught.value.reason) == ("leader.none", True)


def test_of_several_none_is_waited_for_as_long_as_the_only_one(world: World):
    run(opened(Route(at("a"))))
    run(opened(Route(at("a"), at("b"))))
    assert world.patience == [routes.OPEN_S, routes.OPEN_ONE_OF_SEVERAL_S]
