"""Tokens that expire: the server forgets them, and only we can ask for another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jrs.backends.etcd._etcd3 import grpc, rpc
from jrs.backends.etcd.backend import EtcdBackend
from jrs.contract.operations import Create
from jrs.testing.servers import EtcdServer
from tests.backends.etcd.support import USERS, as_user, lead, opened, stream_of
from tests.support import BOUND, until

UNUSED = 2.5
"""Seconds in which a token that lives for one is forgotten, if nobody uses it."""


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def server(request: pytest.FixtureRequest) -> Iterator[EtcdServer]:
    """Tokens of it live for a second after they were last used."""
    from jrs.testing.servers.fixtures import had
    from jrs.testing.servers.found import find_etcd

    with had(
        lambda: find_etcd(users=USERS, tls=request.param, flags=["--auth-token-ttl=1"])
    ) as started:
        yield started


@pytest.fixture
def backend(server: EtcdServer) -> Iterator[EtcdBackend]:
    with opened(as_user(server.url(), "jrs")) as backend:
        yield backend


@pytest.fixture
def expired(backend: EtcdBackend) -> str:
    """A token that the server has forgotten."""
    stubs = backend.connection._members[0]
    login = rpc.AuthenticateRequest(name="jrs", password=USERS["jrs"])
    token: str = stubs.auth.Authenticate(login, timeout=BOUND).token
    asked = rpc.RangeRequest(key=b"jrs")

    def forgotten() -> bool:
        time.sleep(UNUSED)  # To ask would be to use it.
        try:
            stubs.kv.Range(asked, timeout=BOUND, metadata=[("token", token)])
        except grpc.RpcError as error:
            return "invalid auth token" in str(error.details())
        return False

    until(forgotten, "the token is forgotten")
    return token


def test_a_watch_with_an_expired_token_is_deaf_and_ours_hears(
    backend: EtcdBackend, expired: str
) -> None:
    """The server neither refuses it nor sends anything."""
    stubs = backend.connection._members[0]
    over = threading.Event()

    def requests() -> Iterator[Any]:
        create = rpc.WatchCreateRequest(key=backend.name("k"))
        yield rpc.WatchRequest(create_request=create)
        over.wait(BOUND)

    heard: list[Any] = []

    def listen() -> None:
        try:
            for answer in stubs.watch.Watch(requests(), timeout=5, metadata=[("token", expired)]):
                heard.extend(answer.events)
        except grpc.RpcError:
            over.set()

    deaf = threading.Thread(target=listen)
    deaf.start()
    backend.connection._token = expired
    with backend.watch("") as watch:
        assert watch.wait(BOUND)  # As every new watch does.
        until(lambda: stream_of(watch) is not None, "it listens")
        assert watch.wait(BOUND)  # It says that it listens.
        backend.commit(Create("k", b"v"))
        assert watch.wait(BOUND)
    deaf.join()
    assert heard == []


def test_reads_and_writes_log_in_again(backend: EtcdBackend, expired: str) -> None:
    backend.connection._token = expired
    assert backend.get("k") is None

    backend.connection._token = expired
    backend.commit(Create("k", b"v"))
    backend.connection._token = expired
    backend.commit_async(Create("l", b"v")).result(BOUND)

    assert [record.key for record in backend.scan("")] == ["k", "l"]


def test_many_threads_log_in_once(
    backend: EtcdBackend, expired: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often only if one is slow to hear that its token has expired."""
    stubs = backend.connection._members[0]
    logins = []
    inner = stubs.auth.Authenticate

    def counted(*args: Any, **kwargs: Any) -> Any:
        logins.append(args)
        return inner(*args, **kwargs)

    monkeypatch.setattr(stubs.auth, "Authenticate", counted)
    backend.connection._token = expired
    threads = [threading.Thread(target=backend.get, args=("k",)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(logins) < 16


def test_a_leadership_outlives_its_tokens(backend: EtcdBackend, expired: str) -> None:
    """Its heartbeats log in again; so does its end."""
    with lead(backend, 3.0) as leadership:
        seen = leadership.valid_until
        backend.connection._token = expired
        until(lambda: leadership.valid_until > seen + 3.0, "it lasts")
        assert not leadership.lost.is_set()
        backend.commit(Create("k", b"v"), fence=leadership.fence)
        backend.connection._token = expired
    with lead(backend, 60.0) as successor:
        assert successor.epoch == leadership.epoch + 1
