"""A server of S3 on this machine, with one bucket, and a person who may use it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import httpx
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

BUCKET = "lake"
_ANYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


class Server:
    """Where it is, and the variables by which it is reached."""

    def __init__(self, url: str, key: str, secret: str) -> None:
        self.url = url
        self.variables = {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def secret(self) -> str:
        return self.variables["AWS_SECRET_ACCESS_KEY"]

    def store(self) -> S3Store:
        """The bucket."""
        return S3Store(
            BUCKET,
            endpoint=self.url,
            access_key_id=self.variables["AWS_ACCESS_KEY_ID"],
            secret_access_key=self.secret,
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def put_table(self, prefix: str, table: pa.Table) -> None:
        """An object of Parquet."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        obstore.put(self.store(), prefix, sink.getvalue().to_pybytes())

    def names(self, prefix: str = "") -> list[str]:
        """All objects below a prefix."""
        return sorted(each["path"] for found in obstore.list(self.store(), prefix=prefix) for each in found)

    def clear(self) -> None:
        """Remove everything."""
        obstore.delete(self.store(), self.names())


@contextmanager
def open_server() -> Iterator[Server]:
    """A server that checks signatures."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        anybody: dict[str, Any] = {
            "endpoint_url": url,
            "region_name": "us-east-1",
            "aws_access_key_id": "x",
            "aws_secret_access_key": "x",
        }
        boto3.client("s3", **anybody).create_bucket(Bucket=BUCKET)
        people = boto3.client("iam", **anybody)
        people.create_user(UserName="rota")
        people.put_user_policy(UserName="rota", PolicyName="all", PolicyDocument=json.dumps(_ANYTHING))
        made = people.create_access_key(UserName="rota")["AccessKey"]
        # From now on everybody shows who they are.
        httpx.post(f"{url}/moto-api/reset-auth", content=b"0").raise_for_status()
        yield Server(url, made["AccessKeyId"], made["SecretAccessKey"])
    finally:
        server.stop()


def let_in(monkeypatch: pytest.MonkeyPatch, server: Server, **other: str) -> None:
    """Have the variables of a server, and no others, in this process."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in {**server.variables, **other}.items():
        monkeypatch.setenv(name, value)
