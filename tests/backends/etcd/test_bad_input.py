"""What a user gets wrong: one clear line, and nothing changed.

Each through `open_backend`, and through the command line, which exits with 2.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.etcd import backend as backend_module
from jrs.backends.etcd import connection as connection_module
from jrs.backends.etcd._etcd3 import rpc
from jrs.backends.etcd.backend import EtcdBackend
from jrs.cli import main
from jrs.contract.errors import (
    AccessDenied,
    InvalidInput,
    JrsError,
    TooLarge,
    Unavailable,
    UnsupportedVersion,
    WrongAddress,
)
from jrs.contract.operations import Create
from jrs.store.opening import open_backend
from jrs.testing.servers import EtcdServer, Proxy
from jrs.testing.servers.certificates import make_certificates
from jrs.testing.servers.fixtures import had
from jrs.testing.servers.found import find_etcd
from jrs.testing.servers.ports import Ports
from tests.backends.etcd.support import USERS, as_user, dropping, opened, with_option

Refused = Callable[..., None]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Open and list; both have to say `words` in one line, and no secret, whatever the timeout."""

    def check(url: str, kind: type[JrsError], *words: str, cluster: str = "default") -> None:
        limited = url if "timeout=" in url else with_option(url, "timeout=600")
        with pytest.raises(kind) as caught:
            open_backend(limited, cluster=cluster)
        said = str(caught.value)
        for word in words:
            assert word in said
        assert "\n" not in said
        monkeypatch.setattr(
            sys, "argv", ["jrs", "list", "--backend", limited, "--cluster", cluster]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert (ended.value.code, printed.out, printed.err.count("\n")) == (2, "", 1)
        for word in words:
            assert word in printed.err
        for secret in (*USERS.values(), "wrong-s3cret"):
            assert secret not in said + printed.err

    return check


@pytest.fixture(scope="module")
def secured() -> Iterator[EtcdServer]:
    """Speaks TLS."""
    with had(lambda: find_etcd(tls=True)) as server:
        yield server


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdServer]:
    """Asks for users: ``poor`` has no permission, ``reader`` may only read."""
    with had(lambda: find_etcd(users=USERS)) as server:
        whole = {"key": base64.b64encode(b"\0").decode(), "range_end": "AA=="}
        server.ask("/v3/auth/role/add", {"name": "reading"}, user="root")
        permission = {"name": "reading", "perm": {"permType": "READ", **whole}}
        server.ask("/v3/auth/role/grant", permission, user="root")
        for name in ("poor", "reader"):
            login = {"name": name, "password": "wrong-s3cret"}
            server.ask("/v3/auth/user/add", login, user="root")
        server.ask("/v3/auth/user/grant", {"user": "reader", "role": "reading"}, user="root")
        yield server


# -- the address -------------------------------------------------------------------------------


def test_an_unknown_host(refused: Refused) -> None:
    refused("etcd://no.such.host.invalid", WrongAddress, "'no.such.host.invalid' is not known")


def test_a_port_nobody_listens_at(refused: Refused) -> None:
    """Told without waiting for a server that may start."""
    ports = Ports()
    port = ports.take()
    refused(f"etcd://127.0.0.1:{port}", Unavailable, f"no server listens at 127.0.0.1:{port}")
    ports.close()


def test_a_port_of_which_one_member_is_wrong(refused: Refused, etcd_server: EtcdServer) -> None:
    """Is no reason not to open."""
    ports = Ports()
    endpoints = [etcd_server[0].endpoint, ("127.0.0.1", ports.take())]
    for _ in range(4):
        opened(etcd_server.url(endpoints=endpoints)).close()
    ports.close()


def test_an_address_that_takes_all_and_says_nothing(
    refused: Refused, etcd_server: EtcdServer
) -> None:
    with Proxy(etcd_server[0].endpoint) as proxy:
        proxy.swallow()
        url = etcd_server.url(endpoints=[proxy.endpoint])
        refused(with_option(url, "timeout=1"), Unavailable, "cannot be reached")


def test_an_address_that_does_not_take_a_connection(refused: Refused) -> None:
    with dropping() as (host, port):
        refused(f"etcd://{host}:{port}?timeout=1", Unavailable, "no answer from", "firewall")


def test_something_that_is_no_etcd(refused: Refused) -> None:
    """A web server, say."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as web:
        BaseHTTPRequestHandler.log_message = lambda *_: None
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            refused(f"etcd://127.0.0.1:{web.server_port}?timeout=1", Unavailable, "not be reached")
        finally:
            web.shutdown()
            thread.join()


# -- TLS ---------------------------------------------------------------------------------------


def test_a_wrong_authority(refused: Refused, secured: EtcdServer, tmp_path: Path) -> None:
    other = make_certificates(tmp_path).ca
    url = f"etcd://{secured.url_part}?ca={other}"
    refused(url, WrongAddress, "is not trusted")


def test_no_authority_but_the_system_s(refused: Refused, secured: EtcdServer) -> None:
    refused(f"etcd://{secured.url_part}?tls=true", WrongAddress, "is not trusted")


def test_a_file_that_is_no_certificate(
    refused: Refused, secured: EtcdServer, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    refused(f"etcd://{secured.url_part}?ca={bad}", JrsError, "certificate")


def test_plaintext_to_a_port_of_tls(refused: Refused, secured: EtcdServer) -> None:
    refused(f"etcd://{secured.url_part}", WrongAddress, "speaks TLS", "?ca=FILE")


def test_tls_to_a_port_of_plaintext(
    refused: Refused, etcd_server: EtcdServer, secured: EtcdServer
) -> None:
    assert secured.certificates is not None
    url = f"etcd://{etcd_server.url_part}?ca={secured.certificates.ca}"
    refused(url, Unavailable, "does not speak TLS")


def test_no_client_certificate_where_one_is_asked_for(
    refused: Refused, start_etcd: Callable[..., EtcdServer]
) -> None:
    server = start_etcd(mutual_tls=True)
    assert server.certificates is not None
    refused(
        f"etcd://{server.url_part}?ca={server.certificates.ca}", WrongAddress, "client certificate"
    )
    opened(server.url()).close()


# -- users -------------------------------------------------------------------------------------


def test_a_wrong_password(refused: Refused, guarded: EtcdServer) -> None:
    url = as_user(guarded.url(), "jrs", "wrong-s3cret")
    refused(url, AccessDenied, "user 'jrs' or the password is wrong")


def test_a_user_without_permission(refused: Refused, guarded: EtcdServer) -> None:
    url = as_user(guarded.url(), "poor", "wrong-s3cret")
    refused(url, AccessDenied, "permission denied", "on the prefix")


def test_a_user_who_may_only_read(guarded: EtcdServer) -> None:
    """May read."""
    with opened(as_user(guarded.url(), "jrs"), "readable") as backend:
        backend.commit(Create("k", b"v"))
        url = as_user(guarded.url(), "reader", "wrong-s3cret")
        with opened(url, "readable") as reading:
            assert reading.get("k") is not None
            with pytest.raises(AccessDenied, match="permission denied"):
                reading.commit(Create("l", b"v"))
        assert backend.get("l") is None


def test_no_user_where_one_is_asked_for(refused: Refused, guarded: EtcdServer) -> None:
    refused(guarded.url(), AccessDenied, "requires a user", "JRS_BACKEND_PASSWORD")


def test_a_user_where_none_is_asked_for(refused: Refused, etcd_server: EtcdServer) -> None:
    refused(as_user(etcd_server.url(), "jrs"), AccessDenied, "authentication turned off")


def test_a_member_of_another_etcd_that_asks_for_no_user(
    guarded: EtcdServer, etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made again: the next member is asked, which has the users."""
    both = guarded.url(endpoints=[*guarded.endpoints, etcd_server.endpoints[0]])
    monkeypatch.setattr("random.randrange", lambda most: 0)
    with monkeypatch.context() as patch:
        patch.setattr(backend_module, "check_members", lambda connection: None)
        backend = opened(as_user(both, "jrs"))
    with backend:
        backend.connection.next_member()
        backend.connection._token = None
        backend.commit(Create("k", b"v"))
        assert backend.connection._current == 0


# -- what is stored ----------------------------------------------------------------------------


def test_an_etcd_that_is_too_old(
    refused: Refused, etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = connection_module.Connection.read

    def old(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = inner(self, *args, **kwargs)
        if isinstance(answer, rpc.StatusResponse):
            answer.version = "3.3.27"
        return answer

    monkeypatch.setattr(connection_module.Connection, "read", old)
    refused(etcd_server.url("old"), InvalidInput, "is etcd 3.3.27", "3.4 or newer")
    assert _keys(etcd_server, b"/old/") == []


def test_a_place_that_is_in_use(refused: Refused, etcd_server: EtcdServer) -> None:
    """By another program that stores next to what would be ours, under the very key, or anywhere
    below the prefix."""
    for prefix, key in (
        ("theirs", "default/some/thing"),
        ("theirs-too", "default/format"),
        ("theirs-next", "config"),
        ("theirs-below", "a/b"),
    ):
        _put(etcd_server, f"/{prefix}/{key}".encode(), b"{}")
        before = _keys(etcd_server, f"/{prefix}/".encode())
        refused(etcd_server.url(prefix), InvalidInput, "in use by another program")
        assert _keys(etcd_server, f"/{prefix}/".encode()) == before


def test_a_place_with_clusters_and_other_keys(etcd_server: EtcdServer) -> None:
    """A cluster shows that the prefix is meant, wherever it is among other keys."""
    with opened(etcd_server.url("shared"), "middle"):
        for key in ("first", "first-too/k", "first/k", "last/k"):
            _put(etcd_server, f"/shared/{key}".encode(), b"")
    for number in range(120):
        _put(etcd_server, f"/shared/a{number}/k".encode(), b"")
    with opened(etcd_server.url("shared"), "other") as backend:
        backend.commit(Create("k", b""))


def test_a_prefix_with_clusters_further_below(etcd_server: EtcdServer) -> None:
    """Teams may have prefixes of their own below the one of all."""
    with opened(etcd_server.url("every/team"), "one"):
        pass
    with opened(etcd_server.url("every"), "two") as backend:
        backend.commit(Create("k", b""))


def test_a_newer_format(refused: Refused, etcd_server: EtcdServer) -> None:
    _put(etcd_server, b"/newer/default/format", b'{"jrs": "cluster", "version": 99}')
    refused(etcd_server.url("newer"), UnsupportedVersion, "format 99", "upgrade")


def test_a_cluster_that_does_not_exist(etcd_server: EtcdServer) -> None:
    with pytest.raises(InvalidInput, match="there is no cluster 'nobody'"):
        open_backend(etcd_server.url("nowhere"), cluster="nobody", create=False)
    assert _keys(etcd_server, b"/nowhere/") == []


def test_the_format_of_a_cluster_that_was_removed(etcd_server: EtcdServer) -> None:
    with opened(etcd_server.url()) as backend:
        marker = base64.b64encode(backend.root + b"format").decode()
        etcd_server.ask("/v3/kv/deleterange", {"key": marker})
        with pytest.raises(JrsError, match="removed while it was open"):
            backend.mark_format(10**6)


def test_a_value_over_the_limit(etcd_server: EtcdServer) -> None:
    """Refused before it is sent: also by a handle that could not send it."""
    with opened(etcd_server.url()) as backend:
        limit = EtcdBackend.capabilities.max_value
        etcd_server.pause()
        with pytest.raises(TooLarge, match=f"limit {limit:,}"):
            backend.commit(Create("k", bytes(limit + 1)))
        etcd_server.resume()
        backend.commit(Create("k", bytes(limit)))


def _put(server: EtcdServer, key: bytes, value: bytes) -> None:
    body = {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
    server.ask("/v3/kv/put", body)


def _keys(server: EtcdServer, prefix: bytes) -> list[str]:
    end = prefix[:-1] + bytes([prefix[-1] + 1])
    body = {
        "key": base64.b64encode(prefix).decode(),
        "range_end": base64.b64encode(end).decode(),
        "keys_only": True,
    }
    return [found["key"] for found in server.ask("/v3/kv/range", body).get("kvs", [])]
