"""S3 and Google Cloud Storage for tests: a server in a process of its own, and how jrs finds it.

The two services have one protocol; what differs, `tests.s3_server` translates.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from jrs.contract.storage_place import check_url
from jrs.recovery.storage.objects import Objects
from jrs.testing.servers.ports import Ports
from tests.support import environment, until

BUCKET = "bucket"

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}


@attrs.frozen
class S3:
    """A running server.

    Attributes:
        account: the file of the service account that Google's clients have to name.
    """

    port: int
    account: Path

    def url(self, prefix: str = "", bucket: str = BUCKET) -> str:
        """Return the URL of a storage that no other test has."""
        prefix = prefix or uuid.uuid4().hex
        where = f"endpoint=http://127.0.0.1:{self.port}&region=us-east-1"
        return check_url(f"s3://{bucket}/{prefix}?{where}")

    def google_url(self, prefix: str = "", bucket: str = BUCKET) -> str:
        """Return such a URL for clients of Google Cloud Storage."""
        prefix = prefix or uuid.uuid4().hex
        return check_url(f"gs://{bucket}/{prefix}?endpoint=http://127.0.0.1:{self.port}")

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
    account = make_account(log.with_name("account.json"))
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.s3_server", str(port), f"{account}.pub"],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[1],
        )
    try:
        until(lambda: _makes_bucket(port) or process.poll() is not None, "S3 answers", 120)
        assert process.poll() is None, log.read_text()
        with environment(KEYS | {"GOOGLE_SERVICE_ACCOUNT": str(account)}):
            yield S3(port, account)
    finally:
        process.kill()
        process.wait()
        ports.close()


def make_account(path: Path) -> Path:
    """Write the file of a new service account of Google, and its public key next to it."""
    key = generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    fields = {"client_email": "test@example.com", "private_key_id": "1", "private_key": private}
    path.write_text(json.dumps({"type": "service_account", **fields}))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    Path(f"{path}.pub").write_bytes(public)
    return path


def _makes_bucket(port: int) -> bool:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=30):
            return True
    except OSError:
        return False
