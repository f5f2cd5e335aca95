"""A server with the interface of S3, which runs in the process of a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

KEYS: Final[Mapping[str, str]] = {
    "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
}  # fmt: skip


@contextmanager
def run_s3(bucket: str) -> Iterator[dict[str, str]]:
    """Run a server that has a bucket; environment variables name it within the block, and are given."""
    s3fs: Any = pytest.importorskip("s3fs", reason="needs the extra s3")
    server: Any = pytest.importorskip("moto.server", reason="needs moto")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    variables = {**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            s3fs.S3FileSystem.clear_instance_cache()
            with suppress(FileExistsError):  # the servers of a process share their content
                s3fs.S3FileSystem().mkdir(bucket)
            yield variables
            s3fs.S3FileSystem.clear_instance_cache()
    finally:
        running.stop()
