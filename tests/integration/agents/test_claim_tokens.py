"""Claim tokens are known to whoever claimed and to nobody else: not to the store, the journal, events or errors."""

import json
from pathlib import Path

from tests.integration.agents.stage import TOKENS, bearer, open_stage
from tests.integration.http_stage import gate_of


def test_no_claim_token_is_found_anywhere_but_in_the_answer_to_its_claim(tmp_path: Path) -> None:
    heard: list[str] = []
    tokens: list[str] = []
    with open_stage(tmp_path, gate=gate_of(TOKENS), listener=lambda said: heard.append(repr(said))) as here:

        def as_(secret: str) -> None:
            here.headers = bearer(secret)

        def note(answer: object) -> object:
            heard.append(json.dumps(answer))
            return answer

        as_("writer-secret")
        items = [here.submit(f"item {number}", workspace="w", max_attempts=1) for number in range(4)]
        as_("agent-secret")
        here.register("s", workspace="w", limit=4)
        with here.wakes("s") as wakes:
            note(wakes.next("open").value)
            claims = here.claim("s", key="k", limit=4)
            tokens += [claim["token"] for claim in claims]
            claims = here.claim("s", key="k", limit=4)
            tokens += [claim["token"] for claim in claims]
            # Wrong in every way there is, each time with a real token in it.
            spoken = {**claims[0], "fence": claims[1]["fence"]}
            note(here.finish("s", spoken, status=409))
            note(here.finish("s", {**claims[0], "token": tokens[0]}, status=403))
            note(here.finish("s", claims[0], result="x" * 70_000, status=413))
            note(here.finish("s", {**claims[0], "fence": claims[0]["token"]}, status=422))
            note(here.finish("s", claims[0], tokn=claims[0]["token"], status=422))
            note(here.finish("s", claims[0], "renew", 422, lease_ms=-1))
            here.finish("s", claims[0], result={"fine": True})
            here.finish("s", claims[1], "fail", error="no luck")
            here.finish("s", claims[2], "release")
        as_("admin-secret")
        for path in ("sessions", "work", "workers", "scheduler", "scheduler/backlog", "audit", "runs"):
            note(here.get(path))
        for item in items:
            note(here.get(f"work/{item}"))
            note(here.get(f"runs/{item}/tasks/work"))
            heard.append(here.stage.http.get(f"/api/v1/runs/{item}/story", headers=here.headers).text)
        heard += [repr(told) for told in here.stage.told]
        heard.append(here.stage.http.get("/metrics", headers=here.headers).text)
        _search(tmp_path, heard, tokens)
    # Whatever is written at the end is written now.
    _search(tmp_path, heard, tokens)


def _search(folder: Path, heard: list[str], tokens: list[str]) -> None:
    assert len(set(tokens)) == 8
    kept = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert sum(map(len, kept)) > 10_000, "there is something to search"
    for token in tokens:
        assert all(token not in text for text in heard)
        assert all(token.encode() not in content for content in kept)
