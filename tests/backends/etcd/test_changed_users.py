"""Changes of users and roles: etcd refuses what is under way meanwhile, whomever they concern."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jrs.backends.etcd import connection, error_mapping
from jrs.backends.etcd._etcd3 import rpc
from jrs.backends.etcd.backend import EtcdBackend
from jrs.contract.clock import Deadline
from jrs.contract.operations import Create, Update
from jrs.testing.contract import present
from jrs.testing.servers import EtcdServer
from jrs.testing.servers.fixtures import had
from jrs.testing.servers.found import find_etcd
from tests.backends.etcd.support import USERS, as_user, opened
from tests.support import BOUND, until

NAME = "jrs test client"
"""Of the certificate with which tests log in."""


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    users = {**USERS, NAME: "unused"}
    with had(lambda: find_etcd(users=users, mutual_tls=True)) as started:
        yield started


@pytest.fixture
def root(server: EtcdServer) -> Iterator[EtcdBackend]:
    """Who changes users. (The gateway takes nobody with a certificate that names a user.)"""
    with opened(as_user(server.url(), "root")) as backend:
        yield backend


@pytest.fixture
def backend(server: EtcdServer) -> Iterator[EtcdBackend]:
    """It has no token: the certificate names its user."""
    with opened(server.url()) as backend:
        yield backend


def test_a_change_for_others_refuses_nothing_of_ours(
    root: EtcdBackend, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a read nor a write: what the server has refused is repeated."""
    backend.commit(Create("k", b"0"))
    failed: list[BaseException] = []
    refused: list[object] = []
    over = threading.Event()
    inner = error_mapping.outdated

    def outdated(error: Any) -> bool:
        found = inner(error)
        if found:
            refused.append(error)
        return found

    monkeypatch.setattr(connection, "outdated", outdated)

    def write() -> None:
        version = present(backend, "k").version
        backend.commit(Update("k", b"1", version))

    def repeat(call: Callable[[], object]) -> None:
        try:
            while not over.is_set():
                call()
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=repeat, args=(call,))
        for call in (write, *3 * [lambda: backend.get("k")])
    ]
    for thread in threads:
        thread.start()

    def change() -> bool:
        request = rpc.AuthRoleAddRequest(name=uuid.uuid4().hex)
        deadline = Deadline.after(BOUND)
        root.connection.write(lambda stubs: stubs.auth.RoleAdd, request, deadline)
        return bool(failed or refused)

    until(change, "a request is refused")
    over.set()
    for thread in threads:
        thread.join(BOUND)
    assert failed == []
