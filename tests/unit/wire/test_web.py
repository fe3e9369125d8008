"""Requests that can be sent, and those that cannot."""

from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from rota.core.errors import Refused
from rota.wire.web import check_request, origin, show_url
from rota.wire.work import HttpWork, decode_http, encode_work

GOOD = HttpWork(url="https://example.org/a?b=c")


def test_a_request_travels_as_it_was_written() -> None:
    work = HttpWork(method="PUT", url="http://example.org:8080/", headers=(("X-A", "1"),), body=b"\0x", accepted=(418,))
    assert decode_http(encode_work(work)) == work
    assert check_request(work).port == 8080


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"method": "CONNECT"}, "method"),
        ({"method": "get"}, "method"),
        ({"url": ""}, "url"),
        ({"url": "example.org"}, "url"),
        ({"url": "ftp://example.org"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://example.org:0/"}, "url"),
        ({"url": "http://example.org:99999/"}, "url"),
        ({"url": "http://[::1/"}, "url"),
        ({"url": "http://user:pass@example.org/"}, "url"),
        ({"url": "http://example.org/a b"}, "url"),
        ({"url": "http://exämple.org/"}, "url"),
        ({"url": "http://example.org/\r\nX: y"}, "url"),
        ({"url": "http://example.org/" + "x" * 9_000}, "url"),
        ({"headers": (("X Y", "1"),)}, "headers"),
        ({"headers": (("X", "1\r\nY: 2"),)}, "headers"),
        ({"headers": (("Host", "inner"),)}, "headers"),
        ({"headers": (("content-length", "5"),)}, "headers"),
        ({"headers": (("X", "1"),) * 65}, "headers"),
        ({"accepted": ()}, "accepted"),
        ({"accepted": (20,)}, "accepted"),
        ({"timeout_ms": 300_001}, "timeout_ms"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"body": b"x"}, "body"),
    ],
)
def test_what_cannot_be_sent_is_refused(changes: dict[str, object], path: str) -> None:
    check_request(GOOD)
    with pytest.raises(Refused) as refused:
        check_request(replace(GOOD, **changes))
    assert refused.value.path == path


def test_a_refused_header_does_not_show_its_value() -> None:
    with pytest.raises(Refused) as refused:
        check_request(replace(GOOD, headers=(("Authorization", "Bearer sesame\n"),)))
    assert "sesame" not in str(refused.value)


def test_an_address_is_shown_without_its_secrets() -> None:
    assert show_url(urlsplit("https://me:sesame@Example.org:444/a/b?token=sesame#x")) == "https://example.org:444/a/b"
    assert show_url(urlsplit("http://[2001:db8::1]")) == "http://[2001:db8::1]/"
    assert origin(urlsplit("https://Example.org/a")) == ("https", "example.org", 443)
