"""Secrets in texts: whatever looks like one is gone, and what does not stays readable."""

import pytest

from rota.config import Secret
from rota.config.masking import mask, mask_text

SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://rota:{SECRET}@db.example.org/rota",
        f"postgresql://{SECRET}@db/rota?sslmode=require",
        f"etcd://a:2379/x?password={SECRET}&user=b",
        f"Authorization: Bearer {SECRET}-abc",
        f"bearer {SECRET}",
        f'{{"token": "{SECRET}", "other": 1}}',
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"api_key='{SECRET}'",
        f"PGPASSWORD={SECRET}",
        f"Cookie: rota_token={SECRET}; other",
        f"cannot connect: passphrase={SECRET}, tried twice",
    ],
)
def test_what_looks_like_a_secret_is_gone(text: str):
    assert SECRET not in mask_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "grpc://rota.example.org:7433",
        "leader.none: nobody leads. Try again in 250 ms.",
        "task etl/extract#2 belongs to fence 41",
        "mail to ops@example.org",
        "pool.full: key team=a has 3 of 3 slots",
    ],
)
def test_what_does_not_stays_as_it_is(text: str):
    assert mask_text(text) == text


def test_a_value_that_is_named_like_a_secret_is_gone_however_deep():
    given = {"a": [{"db_password": SECRET, "slots": 4}], "token": SECRET, "tokens": 3, "url": f"s3://k:{SECRET}@b"}
    shown = mask(given)
    assert SECRET not in str(shown)
    assert (shown["a"][0]["slots"], shown["tokens"]) == (4, 3)
    assert mask(Secret(SECRET)) == "(set)"
    assert mask(("x", None, True, 1.5)) == ["x", None, True, 1.5]


def test_the_default_of_a_parameter_that_is_named_like_a_secret_is_gone():
    given = [{"name": "password", "default": SECRET}, {"name": "goal", "default": "2500"}]
    assert mask(given) == [{"name": "password", "default": "…"}, {"name": "goal", "default": "2500"}]
