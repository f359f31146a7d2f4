"""TLS: which server a handle trusts, and that a failed handshake is reported once, as the error."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from jrs.backends.etcd import members
from jrs.backends.etcd._etcd3 import rpc
from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput, Unavailable
from jrs.contract.operations import Create
from jrs.testing.servers import EtcdServer
from jrs.testing.servers.certificates import make_certificates
from tests.backends.etcd.support import opened, until_heard
from tests.support import BOUND

OPEN = """
import sys
from jrs.store.opening import open_backend
from jrs.contract.errors import InvalidInput, Unavailable
try:
    open_backend(sys.argv[1], cluster="c")
except Unavailable as error:
    print(error)
"""


def test_the_system_s_authorities_are_trusted(
    start_etcd: Callable[..., EtcdServer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`tls=true` trusts whom the host trusts, in a file or in a folder. gRPC alone would trust a
    list that it brings."""
    server = start_etcd(tls=True)
    url = f"etcd://{server.url_part}?tls=true&timeout=600"
    with pytest.raises(Unavailable, match="is not trusted"):
        opened(url)

    authority = parse_qs(urlsplit(server.url()).query)["ca"][0]
    monkeypatch.setenv("SSL_CERT_FILE", authority)
    with opened(url) as backend:
        backend.commit(Create("k", b""))

    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with pytest.raises(InvalidInput, match="SSL_CERT_DIR names no certificate authorities"):
        opened(url)
    (tmp_path / "5ed36f99.0").symlink_to(authority)
    monkeypatch.setenv("SSL_CERT_DIR", f"{tmp_path / 'none'}:{tmp_path}")
    with opened(url) as backend:
        backend.commit(Create("l", b""))


def test_a_host_without_a_list_of_authorities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """gRPC brings one, which serves an etcd whose certificate is publicly signed."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    paths = ssl.get_default_verify_paths()._replace(openssl_capath=str(tmp_path))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    empty = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr(ssl, "create_default_context", lambda: empty)

    assert members._authorities() is None


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


def test_certificates_that_are_renewed_are_read_again(
    start_etcd: Callable[..., EtcdServer],
) -> None:
    """The servers get a new authority, and so does the client; no handle has to be opened again.
    In the middle of that, the client's certificate and key do not fit."""
    server = start_etcd(mutual_tls=True)
    files = server.certificates
    assert files is not None
    with opened(server.url()) as backend, backend.watch("") as watch:
        backend.commit(Create("k", b""))
        server.kill()
        old = files.client_key.read_bytes()
        make_certificates(files.ca.parent)
        server._context = files.client_context()
        new = files.client_key.read_bytes()
        files.client_key.write_bytes(old)
        members = backend.connection._members
        with pytest.raises(Unavailable):
            backend.get("k", deadline=Deadline.after(1.0))
        assert backend.connection._members is members
        files.client_key.write_bytes(new)
        server.heal()

        assert backend.get("k") is not None
        assert backend.connection._members is not members
        until_heard(backend, watch)


def test_channels_that_were_replaced_are_closed_with_their_handle(
    start_etcd: Callable[..., EtcdServer],
) -> None:
    """A call on one of them ends, as all calls of a handle do that is closed."""
    server = start_etcd(tls=True)
    files = server.certificates
    assert files is not None
    with opened(server.url()) as backend:
        connection = backend.connection
        old = connection._members[0]
        os.utime(files.ca, ns=(1, 1))
        connection._renew()
        assert connection._members[0] is not old
        assert backend.get("k") is None
    with pytest.raises(ValueError, match="closed"):
        old.kv.Range(rpc.RangeRequest(key=b"k"), timeout=BOUND)
