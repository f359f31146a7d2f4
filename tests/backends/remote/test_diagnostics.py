"""Diagnostics: looking for the cause of a failure ends, and asks nobody."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from jrs.backends.remote.address import Tls
from jrs.backends.remote.diagnostics import look, plain_connection
from jrs.contract.clock import Deadline
from jrs.testing.servers.certificates import make_certificates
from tests.support import BOUND


@pytest.fixture
def listener() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


def test_an_encrypted_key_is_named(listener: tuple[str, int], tmp_path: Path) -> None:
    """OpenSSL would ask the terminal for its passphrase, and wait."""
    files = make_certificates(tmp_path)
    key = serialization.load_pem_private_key(files.client_key.read_bytes(), None)
    files.client_key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"sesame"),
        )
    )
    tls = Tls(files.ca, files.client_cert, files.client_key)
    fault = look(listener, tls, Deadline.after(BOUND))

    assert fault is not None
    assert fault.wrong
    assert fault.what == f"the key file {str(files.client_key)!r} is encrypted: decrypt it"


@pytest.fixture
def mute_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the resolver not answer before the test ends."""
    over = threading.Event()

    def getaddrinfo(*_: object, **__: object) -> None:
        over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "over")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield
    over.set()


@pytest.mark.usefixtures("mute_resolver")
def test_a_resolver_that_does_not_answer_is_not_waited_for() -> None:
    fault = look(("host.example", 1), None, Deadline.after(0.1))

    assert fault is not None
    assert not fault.lasting
    assert fault.what == "host.example: its name could not be resolved in time"


@pytest.mark.parametrize(
    ("host", "what"), [("x" * 70, "is not a host name"), ("nowhere.invalid", "is not known")]
)
def test_a_name_that_no_host_has(host: str, what: str) -> None:
    fault = look((host, 1), None, Deadline.after(BOUND))

    assert fault is not None
    assert what in fault.what


def test_a_name_is_resolved_at_the_limit_of_threads(
    listener: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with plain_connection(*listener, Deadline.after(BOUND)) as made:
        assert made.getpeername() == listener
