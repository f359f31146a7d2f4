"""Commits that share requests: nobody's outcome is decided by his neighbours."""

from __future__ import annotations

import threading

import pytest

from jrs.backends.etcd import backend as backend_module
from jrs.contract.clock import Deadline
from jrs.contract.errors import Conflict, Fenced, JrsError
from jrs.contract.operations import Check, Create, Delete, Fence, Update
from jrs.testing.servers import EtcdServer
from tests.backends.etcd.support import opened
from tests.support import BOUND, until


@pytest.mark.parametrize("version", [-(2**70), -1, 0, 2**63 - 1, 2**63, 2**70])
def test_a_version_that_no_server_gives(etcd_server: EtcdServer, version: int) -> None:
    """It does not hold, for a key that is there and for one that is not; zero is etcd's absence."""
    with opened(etcd_server.url()) as backend:
        backend.commit(Create("k", b""))
        for key in ("k", "absent"):
            for op in (Update(key, b"", version), Delete(key, version), Check(key, version)):
                with pytest.raises(Conflict):
                    backend.commit(op)
        with pytest.raises(Fenced):
            backend.commit(Create("l", b""), fence=Fence(1, version))


def test_who_is_in_a_hurry_writes_for_himself_alone(
    etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller whose deadline passes takes none of those down with him that can wait longer."""
    monkeypatch.setattr(backend_module, "WRITE", 6.0)
    with opened(etcd_server.url()) as backend:
        failed: dict[str, JrsError] = {}

        def commit(key: str, seconds: float) -> None:
            try:
                backend.commit(Create(key, b""), deadline=Deadline.after(seconds))
            except JrsError as error:
                failed[key] = error

        threads: list[threading.Thread] = []

        def start(key: str, seconds: float, queued: int) -> None:
            threads.append(threading.Thread(target=commit, args=[key, seconds]))
            threads[-1].start()
            group = backend._group
            until(lambda: group._log.locked() and len(group._queue) == queued, f"{key} waits")

        etcd_server.pause()
        try:
            start("in-flight", 3.0, 0)
            start("hurried", 5.0, 1)
            for number in range(5):
                start(f"patient-{number}", BOUND, number + 2)
            for thread in threads[:2]:
                thread.join(BOUND)
        finally:
            etcd_server.resume()
        for thread in threads:
            thread.join(BOUND)

        assert failed.keys() == {"in-flight", "hurried"}
