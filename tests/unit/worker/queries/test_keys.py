"""Which fragments are given keys of buckets, and which of them."""

import pytest

from rota.core.errors import Refused
from rota.wire.queries import Answered, Fragment, Output, Written
from rota.wire.stores import hint_for, in_words, keys_for, kind_of, named_stores, store_of
from rota.wire.targets import Target
from rota.worker.runners.queries.failures import judge
from rota.worker.runners.queries.keys import Keyring, is_keyed, read_stores
from rota.worker.runners.queries.orders import Order
from rota.worker.runners.queries.sources import Unfit
from rota.worker.runners.queries.unlocking import unlock

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "eu-north-1",
    "AZURE_STORAGE_ACCOUNT_KEY": "other",
    "ROTA_EXECUTOR_TASK_BEARER_TOKEN": "token",
    "PATH": "/bin",
}


def fragment(*stores: str, has_code: bool = False, output: Output | None = None) -> Fragment:
    return Fragment(engine="e", output=output or Answered(), schema=b"", stores=stores, has_code=has_code)


def test_a_fragment_is_given_the_keys_of_its_own_kinds_of_buckets() -> None:
    keyring = Keyring(ENVIRONMENT)
    assert keyring.variables_of(fragment()) == {}
    assert set(keyring.variables_of(fragment("s3://lake"))) == {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
    }
    assert keyring.variables_of(fragment("az://lake")) == {"AZURE_STORAGE_ACCOUNT_KEY": "other"}
    assert is_keyed(fragment("s3://lake"))
    assert not is_keyed(fragment())


def test_functions_are_given_none() -> None:
    with pytest.raises(Unfit, match=r"query\.source: .*Python functions.* s3://lake:"):
        Keyring(ENVIRONMENT).variables_of(fragment("s3://lake", has_code=True))
    public = Keyring({**ENVIRONMENT, "AWS_SKIP_SIGNATURE": "true"})
    given = public.variables_of(fragment("s3://lake", has_code=True))
    assert given == {"AWS_REGION": "eu-north-1", "AWS_SKIP_SIGNATURE": "true"}
    assert not is_keyed(fragment("s3://lake", has_code=True))


def test_a_plan_with_functions_that_were_not_told_of_does_not_meet_keys() -> None:
    given = Order(plan=b"", output=Answered(), schema=b"", folder="", result_file="", stores=("s3://x",), is_keyed=True)
    broke = unlock(given, b"...DFPYUDF\x01\x03\x0b...")
    assert broke is not None
    assert broke.failure == "fatal"


@pytest.mark.parametrize("folder", ["s3://blobs/x", "s3://ocean/x"])
def test_only_buckets_that_are_allowed_are_used_also_where_a_fragment_says_nothing_of_them(folder: str) -> None:
    keyring = Keyring(ENVIRONMENT, ("s3://lake",), blobs="s3://blobs")
    assert keyring.variables_of(fragment("s3://lake"))
    target = Written(Target(folder, "parquet"))
    for each in (fragment(folder[:-2]), fragment(output=target), fragment("s3://lake", output=target)):
        with pytest.raises(Unfit, match=rf"query\.source: .*{folder[:-2]} .*worker\.query_stores"):
            keyring.variables_of(each)


def test_without_a_list_all_are_but_that_of_the_blobs() -> None:
    keyring = Keyring(ENVIRONMENT, blobs="s3://blobs")
    assert keyring.variables_of(fragment("s3://ocean"))
    with pytest.raises(Unfit, match=r"query\.source: .*s3://blobs .*tenants"):
        keyring.variables_of(fragment("s3://blobs"))


def test_a_setting_names_buckets() -> None:
    assert read_stores(["s3://lake/", "gs://sea"], "worker.query_stores") == ("s3://lake", "gs://sea")
    with pytest.raises(Refused, match=r"config\.value.*worker\.query_stores"):
        read_stores(["lake"], "worker.query_stores")


# What stores say.


def test_urls_and_statements_name_stores() -> None:
    assert store_of("s3://lake/a/b.parquet") == "s3://lake"
    assert store_of("file:///a/b") == ""
    sql = "select * from 's3://lake/t/' join \"gs://sea/x\" union select 's3://' from 'az://pond'"
    assert named_stores(sql) == ["s3://lake", "gs://sea", "az://pond"]
    assert keys_for(["gs://sea"], {"GOOGLE_X": "1", "AWS_X": "2", "SSL_CERT_FILE": "f"}) == {
        "GOOGLE_X": "1",
        "SSL_CERT_FILE": "f",
    }


AZURE = (
    "Generic MicrosoftAzure error: Error performing GET https://acc.blob.core.windows.net/lake?comp=list&sig=SECRET "
    "in 1ms - Server returned non-2xx status code: 403 Forbidden: <Error><Code>AuthenticationFailed</Code>"
    "<Message>Signature SECRET did not match</Message></Error>"
)


@pytest.mark.parametrize(
    ("text", "kind", "failure", "words"),
    [
        (AZURE, "denied", "fatal", "https://acc.blob.core.windows.net (403, AuthenticationFailed)"),
        (
            "Generic S3 error: GET http://h:1/b?x in 1s - HTTP error: error sending request",
            "silent",
            "user",
            "http://h:1",
        ),
        ("Generic S3 error: PUT http://169.254.169.254/latest/api/token: 403", "keyless", "fatal", "keys"),
        (
            "Object at location t/0.parquet not found: status code: 404 Not Found",
            "absent",
            "fatal",
            "t/0.parquet is not",
        ),
        (
            "Generic S3 error: GET http://h/b - status code: 503 Slow Down",
            "silent",
            "user",
            "http://h (503)",
        ),
        ("Generic S3 error: odd https://h/?sig=SECRET", "other", "user", "odd …"),
    ],
)
def test_what_a_store_says_is_told_without_what_was_sent(text: str, kind: str, failure: str, words: str) -> None:
    assert kind_of(text) == kind
    assert words in in_words(text)
    assert hint_for(text)
    broke = judge(Exception(text))
    assert (broke.failure, broke.error.startswith("query.source: ")) == (failure, True)
    assert "SECRET" not in broke.error
    assert judge(Exception(text), ["http://h", "https://acc.blob", "169.254", "t/0.parquet"]).failure == "user"
