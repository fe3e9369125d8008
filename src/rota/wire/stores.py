"""Buckets that queries read and write: by URL, with the keys and options of the environment, as the blobs have them.

Who is asked in vain says so within seconds and in one line, without anything that was sent to it.
"""

import os
import re
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from rota.core.errors import Refused

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# By which variables a store of each kind is reached. All of them, since which there are is the library's affair.
# Each store has one name only: it is by name that some of them are not to be used.
_VARIABLES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
# And by which certificates of others are trusted, whoever they are.
_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_NAMED = re.compile(r"\b(?:s3|gs|az)://[A-Za-z0-9][\w.-]*(?=[/'\"])")
_TRUE = ("1", "true", "on", "yes", "y")

# A store that does not answer is asked again, and not for minutes.
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}

# What keeps a store from doing what it is asked: whether trying again might help is told by this.
Trouble = Literal["absent", "denied", "keyless", "silent", "other"]
_OF_STORE = re.compile(r"Generic (?:S3|GCS|MicrosoftAzure) error|lacked the necessary privileges|status code: \d{3}")
_STATUS = re.compile(r"status code: (\d{3})")
_OBJECT = re.compile(r"Object at location (\S{1,500}) not found")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_AT = re.compile(r"(?:GET|HEAD|PUT|POST|DELETE) (https?://[^/\s?]+)")
# Where a machine of a cloud asks for the keys of its own role.
_ROLES = re.compile(r"169\.254\.|metadata\.google|computeMetadata|token request|MissingAccount|Account must be")


def store_of(url: str, code: str = "query.source") -> str:
    """The store that a URL is in, as `s3://bucket`; "" if it is one of files. Raises Refused if we know none such."""
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        return ""
    bucket = rest.partition("/")[0]
    if scheme not in _VARIABLES:
        text = f"files at {scheme}:// cannot be reached"
        raise Refused(code, text, "Name a path, or s3://, gs:// or az:// with a bucket.", path="path")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", bucket):
        # It is not shown: there may be a password before an "@".
        raise Refused(code, f"a URL of {scheme}:// begins with a bucket", f"{scheme}://bucket/…", path="path")
    return f"{scheme}://{bucket}"


def named_stores(sql: str) -> list[str]:
    """The stores that a statement names."""
    return list(dict.fromkeys(found.group() for found in _NAMED.finditer(sql)))


def keys_for(stores: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which these stores are reached."""
    begins = tuple({_VARIABLES[store.partition("://")[0]] for store in stores})
    return {name: value for name, value in environment.items() if name.startswith(begins) or name in _TRUST}


def register(context: Any, store: str) -> None:
    """Have the engine reach a store. Raises Refused."""
    with troubles(store):
        # It says what is missing, where the engine would panic.
        open_store(store)
        context.register_object_store(
            f"{store.partition('://')[0]}://", _engine_store(store), store.partition("://")[2]
        )


def _engine_store(store: str) -> Any:
    stores: Any = import_module("datafusion.object_store")
    scheme, _, bucket = store.partition("://")
    match _VARIABLES[scheme]:
        case "AWS_":
            return stores.AmazonS3(bucket, allow_http=os.environ.get("AWS_ALLOW_HTTP", "").lower() in _TRUE)
        case "AZURE_":
            return stores.MicrosoftAzure(bucket)
        case _:
            with _google_account() as account:
                return stores.GoogleCloud(bucket, account)


@contextmanager
def _google_account() -> Generator[str | None]:
    """The file with a service account; the engine does not look for it by itself, and reads it at once."""
    names = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_APPLICATION_CREDENTIALS")
    named = next((os.environ[name] for name in names if os.environ.get(name)), None)
    key = os.environ.get("GOOGLE_SERVICE_ACCOUNT_KEY")
    if named or not key:
        yield named
        return
    with tempfile.NamedTemporaryFile("w", prefix="rota-", suffix=".json") as file:
        file.write(key)
        file.flush()
        yield file.name


def open_store(url: str) -> "ObjectStore":
    """What is at a URL, for whoever reads and writes without the engine."""
    return from_url(url, retry_config=_RETRIES)


def knock(url: str, code: str = "query.source") -> str:
    """See that a store lets us in, before the engine tries for minutes; a name of what is there. Raises Refused."""
    store, key = store_of(url, code), url.partition("://")[2].partition("/")[2]
    # A pattern of names is looked for below the last folder that it names.
    folder = re.split(r"[*?\[]", key)[0].rpartition("/")[0]
    with troubles(store, code):
        opened = open_store(store)
        try:
            for found in obstore.list(opened, prefix=folder, chunk_size=1):  # pyright: ignore[reportUnknownMemberType]  # Arrow's overload
                return found[0]["path"]
        except BaseError as error:
            # Whoever may not list may still read what they can name.
            if not key or key.endswith("/") or kind_of(str(error)) != "denied":
                raise
            return obstore.head(opened, key)["path"]
    return ""


class troubles:  # noqa: N801 - it is used like a function
    """What a store has against something, as a refusal."""

    def __init__(self, store: str, code: str = "query.source", passing: type[BaseException] | tuple[()] = ()) -> None:
        """`passing` is none of it."""
        self._store = store
        self._code = code
        self._passing = passing

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        is_panic = kind is not None and kind.__name__ == "PanicException"
        if error is None or isinstance(error, self._passing):
            return
        if not (is_panic or isinstance(error, BaseError | OSError | ValueError)):
            return
        raise Refused(self._code, f"{self._store}: {in_words(str(error))}", hint_for(str(error)), path="path") from None


def is_of_store(text: str) -> bool:
    """Whether an error of the engine is that of a store."""
    return _OF_STORE.search(text) is not None


def kind_of(text: str) -> Trouble:
    """What keeps a store from doing what it was asked."""
    if _ROLES.search(text):
        return "keyless"
    found = _STATUS.search(text)
    match found.group(1) if found else "":
        case "404" | "301":
            return "absent"
        case "400" | "401" | "403":
            return "denied"
        case "":
            return "silent" if "HTTP error" in text else "other"
        case _:
            return "silent" if found is not None and found.group(1) >= "500" else "other"


def in_words(text: str) -> str:
    """What an error of a store says, without what was sent and what was answered: keys may be in both."""
    status, code, at = _STATUS.search(text), _CODE.search(text), _AT.search(text)
    known = ", ".join(found.group(1) for found in (status, code) if found)
    known = f" ({known})" if known else ""
    where = f" at {at.group(1)}" if at else ""
    match kind_of(text):
        case "keyless":
            return "there are no keys for it in the environment, and this machine has no role in a cloud"
        case "absent":
            found = _OBJECT.search(text)
            return f"{found.group(1) if found else 'it'} is not there{where}{known}"
        case "denied":
            return f"it does not let us in{where}{known}"
        case "silent":
            return f"it does not answer{where}{known}"
        case _:
            return f"it cannot be used{known}: {_first_words(text)}"


def hint_for(text: str) -> str:
    """What to do about it."""
    match kind_of(text):
        case "keyless" | "denied":
            return "Set the variables of its kind (AWS_…, GOOGLE_…, AZURE_…) here and for workers, as for blobs."
        case "absent":
            return "Check the name of the bucket, its region, and AWS_ENDPOINT_URL if it is not Amazon's."
        case _:
            return "See that it can be reached from here and from workers; AWS_ALLOW_HTTP=true for one without TLS."


def _first_words(text: str) -> str:
    """The first line without addresses, which may have signatures in them."""
    line = re.sub(r"https?://\S+", "…", text.strip().partition("\n")[0])
    return line[:200]
