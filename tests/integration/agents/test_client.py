"""The Python client, embedded and remote, blocking and async: items, sessions, wakes, claims."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.app.submitting import submit_work
from tests.docs.test_examples import serving


@pytest.fixture(params=["embedded", "remote"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[rota.Rota]:
    if request.param == "embedded":
        with rota.Rota.embedded(None, slots=0) as one:
            yield one
        return
    with serving(tmp_path) as (grpc, _), rota.connect(grpc) as one:
        yield one


def test_an_agent_is_woken_claims_and_completes(client: rota.Rota) -> None:
    with client.agent_session(workspace="w", capabilities=["review"]) as session:
        wakes = session.wakes()
        item = client.submit_work("Review", {"n": 1}, requires=["review"], workspace="w")
        wake = next(wakes)
        assert (wake.item, wake.title) == (item.id, "Review")
        (claim,) = session.claim()
        assert claim.payload == {"n": 1} and claim.token not in repr(claim)
        assert session.beat("prompting") == (claim.fence,)
        assert claim.renew(10) < claim.renew()
        claim.complete([1, "two"])
        assert item.result(30) == [1, "two"]
        assert item.status().state == "success" and item.why() == ()


def test_wakes_that_come_while_nobody_asks_are_kept(client: rota.Rota) -> None:
    with client.agent_session(limit=5) as session:
        items = [client.submit_work(f"item {number}").id for number in range(3)]
        found = [wake.item for _, wake in zip(range(3), session.wakes(), strict=False)]
        assert found == items


def test_a_claim_is_failed_released_and_returned_with_its_session(client: rota.Rota) -> None:
    item = client.submit_work("t", max_attempts=1)
    with client.agent_session("one") as session:
        (claim,) = session.claim()
        claim.release()
        (claim,) = session.claim(wait_s=30)
    assert item.status().state == "queued" and client.sessions() == []
    with client.agent_session("two") as session:
        (claim,) = session.claim(wait_s=30)
        claim.fail("cannot be done")
        with pytest.raises(rota.Refused, match=r"lease\.ended"):
            claim.complete()
    assert item.wait(30).error == "cannot be done"
    with pytest.raises(rota.RunFailed):
        item.result()


def test_a_session_that_somebody_else_ended_says_so(client: rota.Rota) -> None:
    with client.agent_session("gone") as session:
        client.forget_worker("gone")
        with pytest.raises(rota.Refused, match=r"worker\.unknown"):
            session.claim()


def test_a_restarted_agent_gives_back_what_it_held_before(client: rota.Rota) -> None:
    item = client.submit_work("t")
    first = client.agent_session("same")
    first.register()
    (claim,) = first.claim()
    with client.agent_session("same") as again:
        assert item.status().state == "queued"
        (newer,) = again.claim()
        assert newer.fence > claim.fence
        with pytest.raises(rota.Refused, match=r"worker\.unknown"):
            claim.complete()
        newer.complete()


def test_everything_is_also_there_for_async_programs() -> None:
    async def program() -> object:
        async with await rota.AsyncRota.embedded(None, slots=0) as here, here.agent_session() as session:
            item = await here.submit_work("t")
            async for wake in session.wakes():
                assert wake.item == item.id
                break
            (claim,) = await session.claim()
            await claim.complete(7)
            return await item.result()

    assert asyncio.run(program()) == 7


def test_one_item_is_handed_in_by_a_program_that_does_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROTA_COORDINATOR", raising=False)
    with rota.Rota.embedded(tmp_path, slots=0) as here:
        id = rota.submit_work("t", {"a": 1}, data=os.fspath(tmp_path), workspace="w")
        assert here.item(id).status().payload == {"a": 1}
    assert submit_work is rota.submit_work


@pytest.mark.parametrize("payload", [object(), print, "x" * 70_000])
def test_what_cannot_be_a_payload_is_refused(payload: object) -> None:
    with rota.Rota.embedded(None, slots=0) as here, pytest.raises(rota.Refused, match=r"field\.(type|size)"):
        here.submit_work("t", payload)
