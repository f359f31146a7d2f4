"""What a private server was asked for is in force: TLS, users, limits, long and short sessions."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionClosedRequireSaslError

from jrs.backends.remote.address import Address, Tls
from jrs.testing.servers import EtcdServer, ServerError, ZooKeeperServer
from tests.support import until
from tests.testing.servers.values import Kazoo, read, write

BOUND = 20.0
StartEtcd = Callable[..., EtcdServer]
StartZooKeeper = Callable[..., ZooKeeperServer]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Kazoo logs each refusal that is wanted here."""
    logger = logging.getLogger("kazoo")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def test_etcd_with_tls(start_etcd: StartEtcd) -> None:
    """It serves TLS only, to clients that trust its authority."""
    server = start_etcd(tls=True)
    files = server.certificates
    assert files is not None
    write(server, "key", b"value")

    assert read(server, "key") == b"value"
    assert server.leader() == 0
    assert Address.parse(server.url(), default_port=2379, environment={}).tls == Tls(files.ca)
    assert _version(server, ssl.create_default_context(cafile=str(files.ca))) == server.version()

    with pytest.raises(ssl.SSLCertVerificationError):
        _version(server, ssl.create_default_context())
    with pytest.raises((http.client.HTTPException, OSError, ValueError)):
        _version(server, None)


def test_etcd_with_mutual_tls(start_etcd: StartEtcd) -> None:
    """A client without a certificate is refused."""
    server = start_etcd(mutual_tls=True)
    files = server.certificates
    assert files is not None
    write(server, "key", b"value")

    assert read(server, "key") == b"value"
    assert Address.parse(server.url(), default_port=2379, environment={}).tls == Tls(
        files.ca, files.client_cert, files.client_key
    )

    with pytest.raises(OSError):  # noqa: PT011 - an alert, or a reset that overtook it
        _version(server, ssl.create_default_context(cafile=str(files.ca)))


def test_etcd_with_users(start_etcd: StartEtcd) -> None:
    """Nothing is read without a login, also after a restart; a token ends when it was said to."""
    server = start_etcd(users={"root": "strong", "jrs": "secret"}, flags=["--auth-token-ttl=1"])
    with pytest.raises(ServerError, match="user name is empty"):
        write(server, "key", b"value")
    server.kill()
    server.heal()
    with pytest.raises(ServerError, match="user name is empty"):
        read(server, "key")

    assert "header" in server.ask("/v3/kv/range", {"key": "a2V5"}, user="jrs")
    assert "users" in server.ask("/v3/auth/user/list", {}, user="root")
    with pytest.raises(ServerError, match="permission denied"):
        server.ask("/v3/auth/user/list", {}, user="jrs")


def test_etcd_with_limits(start_etcd: StartEtcd) -> None:
    """Flags are passed on: a transaction over the limit is refused."""
    server = start_etcd(flags=["--max-txn-ops=2"])
    put = {"requestPut": {"key": "a2V5", "value": "a2V5"}}
    with pytest.raises(ServerError, match="too many operations"):
        server.ask("/v3/kv/txn", {"success": [put] * 3})


def test_an_etcd_ensemble_with_tls(start_etcd: StartEtcd) -> None:
    """Each member serves TLS, and its leader is found."""
    server = start_etcd(members=3, tls=True)
    write(server, "key", b"value")
    first = server.leader()
    server[first].kill()

    assert server.leader() != first
    server.heal()
    assert read(server, "key") == b"value"


def test_zookeeper_with_tls(start_zookeeper: StartZooKeeper) -> None:
    """Its client port serves TLS only, to clients that trust its authority."""
    server = start_zookeeper(tls=True)
    files = server.certificates
    assert files is not None
    with Kazoo(server, use_ssl=True, ca=str(files.ca)) as client:
        assert client.get_children("/") == ["zookeeper"]

    assert Address.parse(server.url(), default_port=2181, environment={}).tls == Tls(files.ca)
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(server, ssl.create_default_context())
    with socket.create_connection(server.endpoints[0], BOUND) as plain:
        plain.sendall(b"srvr" * 8)  # More than the header of a TLS record.

        assert b"Zookeeper" not in plain.recv(64)


def test_zookeeper_with_mutual_tls(start_zookeeper: StartZooKeeper) -> None:
    """A client without a certificate is refused."""
    server = start_zookeeper(mutual_tls=True)
    files = server.certificates
    assert files is not None
    cert, key = str(files.client_cert), str(files.client_key)
    with Kazoo(server, use_ssl=True, ca=str(files.ca), certfile=cert, keyfile=key) as client:
        assert client.get_children("/") == ["zookeeper"]

    _shake_hands(server, files.client_context())
    # Not with kazoo, which leaves a socket open for each handshake that fails.
    with pytest.raises(OSError):  # noqa: PT011 - an alert, or a reset that overtook it
        _shake_hands(server, ssl.create_default_context(cafile=str(files.ca)))


def test_zookeeper_with_users(start_zookeeper: StartZooKeeper) -> None:
    """Only a client that logs in by SASL gets in."""
    server = start_zookeeper(users={"jrs": "secret"})

    def login(password: str) -> dict[str, Any]:
        return {"mechanism": "DIGEST-MD5", "username": "jrs", "password": password}

    with Kazoo(server, sasl_options=login("secret")) as client:
        assert client.get_children("/") == ["zookeeper"]

    with pytest.raises(SessionClosedRequireSaslError):
        _children(server)
    with pytest.raises(SessionClosedRequireSaslError):
        _children(server, auth_data=[("digest", "jrs:secret")])


def test_zookeeper_for_digest_only(start_zookeeper: StartZooKeeper) -> None:
    """Only one with credentials of the scheme digest gets in."""
    server = start_zookeeper(digest_only=True)

    assert _children(server, auth_data=[("digest", "jrs:secret")]) == ["zookeeper"]
    with pytest.raises((SessionClosedRequireSaslError, ConnectionLoss, AuthFailedError)):
        _children(server)


@pytest.mark.parametrize("seconds", [0.4, 15.0, 3600.0])
def test_zookeeper_grants_long_and_short_sessions(
    zookeeper_server: ZooKeeperServer, seconds: float
) -> None:
    """The short tick of the test servers does not bound the sessions."""
    with Kazoo(zookeeper_server, timeout=seconds) as client:

        def session() -> str | None:
            """Return what the server says of it. One that expired is followed by another."""
            name = f"sid=0x{(client.client_id or [0])[0]:x},"
            lines = zookeeper_server.ask("cons").splitlines()
            return next((line for line in lines if name in line), None)

        assert f"to={seconds * 1000:.0f}," in until(session, "the server has a session of it")


def test_certificates_are_private(start_etcd: StartEtcd) -> None:
    """The keys are readable for nobody else, and gone with the server."""
    server = start_etcd(tls=True)
    files = server.certificates
    assert files is not None
    folder: Path = files.key.parent

    assert folder.stat().st_mode & 0o077 == 0

    server.close()

    assert not folder.exists()


def _children(server: ZooKeeperServer, **options: Any) -> list[str]:
    with Kazoo(server, **options) as client:
        children: list[str] = client.get_children("/")
        return children


def _shake_hands(server: ZooKeeperServer, context: ssl.SSLContext) -> None:
    """Ask over TLS; by the answer, the server has seen our certificate, or missed it."""
    host, port = server.endpoints[0]
    with socket.create_connection((host, port), BOUND) as plain:
        with context.wrap_socket(plain, server_hostname=host) as connection:
            connection.sendall(b"srvr")

            assert b"Zookeeper" in connection.recv(64)


def _version(server: EtcdServer, context: ssl.SSLContext | None) -> str:
    host, port = server.endpoints[0]
    connection = (
        http.client.HTTPConnection(host, port, timeout=BOUND)
        if context is None
        else http.client.HTTPSConnection(host, port, timeout=BOUND, context=context)
    )
    try:
        connection.request("GET", "/version")
        return str(json.loads(connection.getresponse().read())["etcdserver"])
    finally:
        connection.close()
