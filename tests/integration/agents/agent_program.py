"""An agent in a process of its own, over HTTP alone: `agent_program URL SESSION [complete]`.

It prints what it is told and what it claims, a line each, so that whoever started it can wait for that.
"""

import json
import sys

import httpx

from tests.integration.http_stage import read_events


def main() -> None:
    url, session, *rest = sys.argv[1:]
    with httpx.Client(base_url=f"{url}/api/v1", timeout=3_600) as http:
        joined = http.post("/sessions", json={"session": session, "workspace": "w", "silence_ms": 1_000})
        assert joined.status_code == 201, joined.text
        with http.stream("GET", f"/sessions/{session}/wakes") as response:
            for event in read_events(response):
                claims = http.post(f"/sessions/{session}/claims", json={}).json().get("claims", [])
                say(event.name)
                for claim in claims:
                    say(f"claimed {claim['item']} {claim['fence']} {claim['deliveries']}")
                    if rest:
                        body = {"fence": claim["fence"], "token": claim["token"], "result": session}
                        done = http.post(f"/sessions/{session}/claims/{claim['item']}/complete", json=body)
                        say(f"completed {done.status_code}")
                    else:
                        say(json.dumps(claim))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
