"""Azurite, Microsoft's emulator of Azure's storage, for tests.

It runs only where JRS_TEST_AZURITE names its command ``azurite-blob``. `./dev long clouds` installs
it, by npm.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import attrs

from jrs.contract.storage_place import check_url
from jrs.testing.servers.ports import Ports
from tests.support import environment, until

COMMAND = os.environ.get("JRS_TEST_AZURITE", "")

ACCOUNT = "devstoreaccount1"
KEY = base64.b64encode(hashlib.sha256(b"not a secret").digest()).decode()
CONTAINER = "bucket"
_VERSION = "2018-03-28"


@attrs.frozen
class Azurite:
    """A running server."""

    port: int

    def url(self, prefix: str = "", container: str = CONTAINER) -> str:
        """Return the URL of a storage that no other test has."""
        prefix = prefix or uuid.uuid4().hex
        where = f"endpoint=http://127.0.0.1:{self.port}/{ACCOUNT}"
        return check_url(f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net/{prefix}?{where}")


@contextmanager
def serving_azure(log: Path) -> Iterator[Azurite]:
    """Run a server with one container, and give this process and its children the key to it."""
    ports = Ports()
    port = ports.take()
    arguments = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [COMMAND, *arguments, "--blobHost", "127.0.0.1", "--blobPort", str(port)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
        )
    try:
        until(lambda: _makes_container(port) or process.poll() is not None, "Azurite answers", 120)
        assert process.poll() is None, log.read_text()
        with environment({"AZURE_STORAGE_ACCOUNT_KEY": KEY}):
            yield Azurite(port)
    finally:
        process.kill()
        process.wait()
        ports.close()


def signed_for_reading() -> str:
    """Return a shared access signature that permits to read and to list, and nothing else."""
    fields = {"sp": "rl", "ss": "b", "srt": "sco", "st": "", "se": "2100-01-01", "sip": ""}
    fields |= {"spr": "https,http", "sv": _VERSION}
    signature = _signature("".join(f"{one}\n" for one in (ACCOUNT, *fields.values())))
    shown = {name: value for name, value in fields.items() if value}
    return urllib.parse.urlencode({**shown, "sig": signature})


def _makes_container(port: int) -> bool:
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
    path = f"/{ACCOUNT}/{CONTAINER}"
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    blank = "\n" * 12  # Headers that this request has not.
    text = f"PUT{blank}{named}/{ACCOUNT}{path}\nrestype:container"
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}?restype=container",
        method="PUT",
        headers={**headers, "Authorization": f"SharedKey {ACCOUNT}:{_signature(text)}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30):
            return True
    except urllib.error.HTTPError as error:
        raise AssertionError(f"Azurite refuses a container: {error.read().decode()}") from None
    except OSError:
        return False


def _signature(text: str) -> str:
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()
