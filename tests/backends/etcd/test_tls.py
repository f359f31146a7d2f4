"""TLS: which server a handle trusts, and that a failed handshake is reported once, as the error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from jrs.contract.errors import Unavailable
from jrs.contract.operations import Create
from jrs.testing.servers import EtcdServer
from tests.backends.etcd.support import opened

OPEN = """
import sys
from jrs.store.opening import open_backend
from jrs.contract.errors import Unavailable
try:
    open_backend(sys.argv[1], cluster="c")
except Unavailable as error:
    print(error)
"""


def test_the_system_s_authorities_are_trusted(
    start_etcd: Callable[..., EtcdServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tls=true` trusts whom the host trusts. gRPC alone would trust a list that it brings."""
    server = start_etcd(tls=True)
    url = f"etcd://{server.url_part}?tls=true&timeout=600"
    with pytest.raises(Unavailable, match="is not trusted"):
        opened(url)

    monkeypatch.setenv("SSL_CERT_FILE", parse_qs(urlsplit(server.url()).query)["ca"][0])
    with opened(url) as backend:
        backend.commit(Create("k", b""))


def test_a_handshake_that_fails_prints_nothing(start_etcd: Callable[..., EtcdServer]) -> None:
    """gRPC would print a line for each try, next to the one line that says what is wrong."""
    server = start_etcd(tls=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    said = subprocess.run(
        [sys.executable, "-c", OPEN, f"etcd://{server.url_part}?tls=true&timeout=600"],
        capture_output=True,
        text=True,
        env=kept,
        check=True,
    )

    assert said.stdout.count("\n") == 1
    assert "is not trusted" in said.stdout
    assert said.stderr == ""
