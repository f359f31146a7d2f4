"""Members of a URL that are not of one etcd: each would have records, and a leader, of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jrs.backends.etcd import backend as backend_module
from jrs.backends.etcd import cluster as cluster_module
from jrs.backends.etcd import diagnostics
from jrs.backends.etcd._etcd3 import rpc
from jrs.backends.etcd.backend import EtcdBackend
from jrs.backends.etcd.connection import Connection
from jrs.backends.remote.address import Address
from jrs.contract.clock import Deadline
from jrs.contract.errors import AccessDenied, Unavailable
from jrs.contract.operations import Create
from jrs.testing.servers import EtcdServer
from tests.backends.etcd.support import as_user, opened, until_heard
from tests.support import BOUND, until


@pytest.fixture
def both(etcd_server: EtcdServer, etcd_ensemble: EtcdServer) -> str:
    """The URL of two members of different etcds."""
    return etcd_server.url(endpoints=[*etcd_server.endpoints, etcd_ensemble.endpoints[0]])


@pytest.fixture
def backend(both: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[EtcdBackend]:
    """A handle on the first of them: the second one was silent then, or was made again since."""
    with monkeypatch.context() as patch:
        patch.setattr(backend_module, "check_members", lambda connection: None)
        patch.setattr("random.randrange", lambda most: 0)
        handle = opened(both)
    with handle:
        yield handle


def test_they_are_refused(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them would have been asked first."""
    monkeypatch.setattr(cluster_module, "_OTHERS", BOUND)
    for first in range(2):
        monkeypatch.setattr("random.randrange", lambda most, at=first: at)
        with pytest.raises(Unavailable, match="different etcds"):
            opened(both)


def test_an_ensemble_is_one_etcd(
    etcd_ensemble: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "_OTHERS", BOUND)
    opened(etcd_ensemble.url()).close()


def test_a_handle_takes_no_answer_of_another_etcd(
    backend: EtcdBackend, etcd_server: EtcdServer, etcd_ensemble: EtcdServer
) -> None:
    """Nothing is absent because another etcd does not have it, and nothing is written there."""
    backend.commit(Create("k", b"v"))
    etcd_server.pause()
    calls: list[Callable[[], object]] = [
        lambda: backend.get("k", deadline=Deadline.after(4.0)),
        lambda: backend.commit(Create("l", b"v"), deadline=Deadline.after(4.0)),
    ]
    for call in calls:
        # A member of which it does not know.
        backend.connection._members[1].answers = False
        with pytest.raises(Unavailable, match=r"not of this etcd any more.*nothing was changed"):
            call()
    with opened(etcd_ensemble.url(), backend.cluster) as other:
        assert list(other.scan("")) == []
    etcd_server.resume()
    assert backend.get("k") is not None


def test_what_another_etcd_has_done_is_not_done(backend: EtcdBackend) -> None:
    """A member that was made again between two writes: the write goes to the next member."""
    connection = backend.connection
    connection.next_member()
    connection._members[1].answers = True  # When it was last asked, it was of ours.
    backend.commit(Create("k", b"v"))
    assert connection._current == 0
    assert backend.get("k") is not None


def test_a_watch_listens_to_no_other_etcd(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it comes to a member of another one between its read and its stream."""
    stream, came = backend.connection.stream, list[None]()

    def streams(*args: Any) -> Any:
        if not came:
            backend.connection._current = 1
        came.append(None)
        return stream(*args)

    monkeypatch.setattr(backend.connection, "stream", streams)
    with backend.watch("") as watch:
        until(lambda: len(came) > 1, "it has left the other one")
        until_heard(backend, watch)


def test_a_member_that_refuses_a_log_in_is_not_ours_for_that(both: str) -> None:
    """No answer of it is used; the first answer that is used says which etcd is ours."""
    connection = Connection(Address.parse(as_user(both, "jrs"), default_port=2379))
    status = connection.each(lambda stubs: stubs.maintenance.Status, rpc.StatusRequest(), BOUND)
    assert [type(error) for error in status] == [AccessDenied] * 2
    assert connection._etcd == 0
    connection.close()


def test_the_doctor_names_the_member(backend: EtcdBackend) -> None:
    found = [one for one in diagnostics.members(backend.connection, BOUND) if one.remedy]
    assert len(found) == 1
    assert backend.connection._members[1].target in found[0].detail
    assert "another etcd" in found[0].detail
