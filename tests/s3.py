"""S3 for tests: a server in a process of its own, and how jrs finds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from jrs.contract.storage_place import check_url
from jrs.recovery.storage.objects import Objects
from jrs.testing.servers.ports import Ports
from tests.support import until

BUCKET = "bucket"

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}


@attrs.frozen
class S3:
    """A running server."""

    port: int

    def url(self, prefix: str = "", bucket: str = BUCKET) -> str:
        """Return the URL of a storage that no other test has."""
        prefix = prefix or uuid.uuid4().hex
        where = f"endpoint=http://127.0.0.1:{self.port}&region=us-east-1"
        return check_url(f"s3://{bucket}/{prefix}?{where}")

    def objects(self, url: str, cluster: str = "default") -> Objects:
        return Objects(url, cluster)

    def fail(self, **faults: Any) -> None:
        """Have the server fail from now on; without arguments, let it work."""
        self._call("/_faults", json.dumps(faults).encode())

    def requests(self) -> dict[str, int]:
        """Return how many requests there were since the last call, by method."""
        found: dict[str, int] = json.loads(self._call("/_requests"))
        return found

    def _call(self, path: str, data: bytes | None = None) -> bytes:
        url = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(url, data, timeout=30) as answer:
            return bytes(answer.read())


@contextmanager
def serving(log: Path) -> Iterator[S3]:
    """Run a server with one bucket, and give this process and its children the keys to it."""
    ports = Ports()
    port = ports.take()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.s3_server", str(port)],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[1],
        )
    before = {name: os.environ.get(name) for name in KEYS}
    os.environ.update(KEYS)
    try:
        until(lambda: _makes_bucket(port) or process.poll() is not None, "S3 answers", 120)
        assert process.poll() is None, log.read_text()
        yield S3(port)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        process.kill()
        process.wait()
        ports.close()


def _makes_bucket(port: int) -> bool:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=30):
            return True
    except OSError:
        return False
