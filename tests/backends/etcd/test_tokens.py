"""Tokens that expire: the server forgets them, and only we can ask for another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from jrs.backends.etcd._etcd3 import grpc, rpc
from jrs.backends.etcd.backend import EtcdBackend
from jrs.backends.shared.lease import LeadershipLease
from jrs.contract.operations import Create
from jrs.contract.watch import Watch
from jrs.testing.servers import EtcdServer
from tests.backends.etcd.support import USERS, as_user, beat_often, lead, opened, until_heard
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


@pytest.fixture(scope="module")
def expired(server: EtcdServer) -> Iterator[str]:
    """A token that the server has forgotten."""
    with opened(as_user(server.url(), "jrs")) as backend:
        yield forgotten_token(backend)


def forgotten_token(backend: EtcdBackend) -> str:
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
        create = rpc.WatchCreateRequest(key=backend.name("k0"))
        yield rpc.WatchRequest(create_request=create)
        over.wait(BOUND)

    heard: list[Any] = []
    stream = stubs.watch.Watch(requests(), metadata=[("token", expired)])

    def listen() -> None:
        with suppress(grpc.RpcError):  # It is canceled in the end.
            for answer in stream:
                heard.extend(answer.events)

    deaf = threading.Thread(target=listen)
    deaf.start()
    backend.connection._token = expired
    with backend.watch("") as watch:
        until_heard(backend, watch)
        for number in range(20):  # Enough for the other one to hear of the first.
            backend.commit(Create(f"k{number}", b"v"))
            until(partial(names, watch, f"k{number}"), "it hears of it")
    stream.cancel()
    over.set()
    deaf.join(BOUND)
    assert heard == []


def names(watch: Watch, key: str) -> bool:
    return key in (watch.changes(BOUND) or ())


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


def lasts_until(leadership: LeadershipLease, moment: float) -> bool:
    return leadership.valid_until > moment


def test_a_leadership_outlives_its_tokens(
    backend: EtcdBackend, expired: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeats log in again; so does its end."""
    beat_often(monkeypatch)
    with lead(backend) as leadership:
        for _ in range(3):  # The first one may be under way, with another token.
            backend.connection._token = expired
            until(partial(lasts_until, leadership, leadership.valid_until), "a heartbeat")
        assert not leadership.lost.is_set()
        backend.commit(Create("k", b"v"), fence=leadership.fence)
        backend.connection._token = expired
    with lead(backend) as successor:
        assert successor.epoch == leadership.epoch + 1
