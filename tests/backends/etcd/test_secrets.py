"""Secrets are seen nowhere: not in a representation, an error, the URL, or a guardian's process."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import pytest

from jrs.backends.etcd.backend import EtcdBackend
from jrs.contract.errors import JrsError
from jrs.contract.operations import Create
from jrs.testing.servers import EtcdServer
from jrs.testing.servers.fixtures import had
from jrs.testing.servers.found import find_etcd
from tests.backends.etcd.support import (
    USERS,
    as_user,
    environment_of,
    guardian_of,
    lead,
    opened,
    with_option,
)

SECRET = USERS["jrs"]


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    with had(lambda: find_etcd(users=USERS)) as started:
        yield started


@pytest.fixture(params=["url", "environment"])
def backend(
    request: pytest.FixtureRequest, server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EtcdBackend]:
    """Opened with a password from either place."""
    url = as_user(server.url(), "jrs")
    if request.param == "environment":
        monkeypatch.setenv("JRS_BACKEND_USER", "jrs")
        monkeypatch.setenv("JRS_BACKEND_PASSWORD", SECRET)
        url = server.url()
    with opened(url) as backend:
        yield backend


def test_the_handle_does_not_show_them(backend: EtcdBackend) -> None:
    connection = backend.connection
    shown = [backend.url, repr(backend), repr(connection), repr(connection.address)]
    assert connection._token
    for secret in (SECRET, connection._token):
        assert secret not in "".join(shown)


def test_the_guardian_s_process_does_not_show_them(backend: EtcdBackend) -> None:
    """Wherever its master had them from."""
    with lead(backend) as leadership:
        guardian = guardian_of(leadership)
        assert SECRET.encode() not in environment_of(guardian.pid)


def test_errors_do_not_show_them(server: EtcdServer, backend: EtcdBackend) -> None:
    """Nor the errors they come from, as a traceback prints them."""

    def wrong_password() -> object:
        return opened(as_user(server.url(), "jrs", "wrong-" + SECRET))

    def wrong_option() -> object:
        return opened(with_option(as_user(server.url(), "jrs"), "nothing=1"))

    def wrong_port() -> object:
        return opened(as_user("etcd://127.0.0.1:1", "jrs") + "?timeout=1")

    def conflict() -> None:
        backend.commit(Create("k", b"v"))
        backend.commit(Create("k", b"v"))

    acts: list[Callable[[], object]] = [wrong_password, wrong_option, wrong_port, conflict]
    for act in acts:
        with pytest.raises(JrsError) as caught:
            act()
        assert SECRET not in "".join(traceback.format_exception(caught.value))
