"""S3 of this process: a server of moto on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

BUCKET = "measured"


@dataclass
class Server:
    """A store that runs until it is ended; its contents outlive it."""

    server: Any
    url: str = f"s3://{BUCKET}/lab"

    def known_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Sets the environment: a bucket, and credentials that anybody has."""
        import boto3
        from fsspec import asyn
        from s3fs import S3FileSystem

        S3FileSystem.clear_instance_cache()
        # Its thread stays in the network namespace in which another test may have begun it.
        asyn.reset_after_fork()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server._port}",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket=BUCKET)

    def end(self) -> None:
        self.server.stop()

    def begin_again(self) -> None:
        from moto.server import ThreadedMotoServer

        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.server._port)
        self.server.start()


@contextmanager
def serving() -> Iterator[Server]:
    """A store in the network namespace of the calling thread."""
    from moto.server import ThreadedMotoServer

    found = Server(ThreadedMotoServer(ip_address="127.0.0.1", port=0))
    found.server.start()
    _, found.server._port = found.server.get_host_and_port()
    yield found
    found.end()
