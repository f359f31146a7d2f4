"""Masters wait out what passes, or what an operator has to mend, and lead afterwards."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.backend import Backend
from jrs.contract.operations import Create, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import AttemptRecord, EpochRecord
from jrs.recovery.master import Master
from jrs.recovery.rules.events import Event
from jrs.store.opening import open_backend
from jrs.testing.masters import MasterProcess, Masters
from jrs.testing.servers import EtcdServer, ZooKeeperServer
from jrs.testing.worker import Worker
from tests.backends.etcd.support import with_option
from tests.crash.forms import begin_in_old_form
from tests.crash.test_disk_full import disk
from tests.small_disk import fill
from tests.support import BOUND, until

__all__ = ["disk"]
TTL = 5.0


class Waiting:
    """A master in a thread of its own, and what it reports."""

    def __init__(self, backend: Backend, url: str, storage: Path) -> None:
        self.events: list[Event] = []
        self.errors: list[BaseException] = []
        self.stop = threading.Event()
        self.master = Master(
            backend, url=url, storage=storage, ttl=TTL, name="waiting", report=self.events.append
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.master.run(self.stop)
        except BaseException as error:
            self.errors.append(error)

    def until(self, kind: str) -> Event:
        def reported() -> list[Event]:
            assert not self.errors, self.errors
            return [event for event in self.events if event.kind == kind]

        until(reported, f"it is {kind}")
        return reported()[0]


@contextmanager
def waiting(backend: Backend, url: str, storage: Path) -> Iterator[Waiting]:
    one = Waiting(backend, url, storage)
    try:
        yield one
    finally:
        one.stop.set()
        one.thread.join()


def test_a_full_disk(disk: Path, tmp_path: Path) -> None:
    """D1: with the disk full and the leader gone a master waits and says why; it leads as soon as
    there is room again."""
    root = disk / "store"
    root.mkdir()
    with Worker(root.as_uri(), "default") as first, FileBackend(root) as backend:
        first.lead("first", TTL)
        with waiting(backend, root.as_uri(), tmp_path / "storage") as master:
            until(lambda: list(backend.scan(keys.MASTERS)), "it is registered")
            ballast = fill(disk, 0)
            first.kill()
            assert "space" in master.until("waiting").message
            ballast.unlink()
            master.until("leading")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EROFS, errno.EACCES])
def test_a_lock_file_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """D1: no descriptor left, a disk that can only be read, no permission: the same. It is said
    once, not at each try."""
    real, tries, passes = os.open, [], threading.Event()

    def failing(path: Path, flags: int, *mode: int, **more: int) -> int:
        if str(path).endswith(".lock") and flags & os.O_CREAT and not passes.is_set():
            tries.append(path)
            raise OSError(number, os.strerror(number))
        return real(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", failing)
    with FileBackend(tmp_path) as backend:
        with waiting(backend, tmp_path.as_uri(), tmp_path / "storage") as master:
            until(lambda: len(tries) > 1, "it tries again")
            passes.set()
            master.until("leading")
            said = [event.message for event in master.events if event.kind == "waiting"]
    assert len(said) == 1
    assert os.strerror(number) in said[0]


def record_epochs(backend: Backend) -> None:
    """Leave traces of the epochs 1 to 7."""
    backend.commit(Create(keys.EPOCH, encode(EpochRecord(1, "gone", "1-gone.lock"))))
    backend.commit(Create(keys.ATTEMPTS + "job", encode(AttemptRecord("job", 3, epoch=7))))


def mended(backend: Backend, url: str, storage: Path, highest: int) -> None:
    """A master waits for the damaged epoch to be restored, and then leads above all others."""
    with waiting(backend, url, storage) as master:
        assert "jrs fsck --repair" in master.until("waiting").message
        done = subprocess.run(
            [sys.executable, "-m", "jrs", "fsck", "--repair"],
            env={**os.environ, "JRS_BACKEND": url, "JRS_CLUSTER": backend.cluster},
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"restored {keys.EPOCH}: epoch {highest + 1}" in done.stderr, done
        assert master.until("leading").epoch == highest + 2
        assert len([event for event in master.events if event.kind == "waiting"]) == 1


def garbage(url: str, storage: Path) -> None:
    # A cluster of its own: other tests use the shared servers, too.
    with open_backend(url, cluster=uuid.uuid4().hex) as backend:
        record_epochs(backend)
        found = backend.get(keys.EPOCH)
        assert found is not None
        backend.commit(
            Update(keys.EPOCH, found.value[:-9] + b"x" + found.value[-8:], found.version)
        )
        mended(backend, url, storage, 7)


def test_a_damaged_epoch_on_file(tmp_path: Path) -> None:
    """D5: a damaged epoch ends no master: it says so and waits; an operator restores it."""
    garbage((tmp_path / "store").as_uri(), tmp_path / "storage")


def test_a_damaged_epoch_on_etcd(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """D5: the same on etcd."""
    garbage(etcd_server.url(), tmp_path / "storage")


def test_a_damaged_epoch_on_zookeeper(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    """D5: the same on ZooKeeper."""
    garbage(zookeeper_server.url(), tmp_path / "storage")


def test_a_damaged_line_of_a_base_that_held_the_epoch(tmp_path: Path) -> None:
    """D5: the same where the base of an old form is damaged, so that no commit on the epoch can be
    evaluated."""
    root = tmp_path / "store"
    begin_in_old_form(root)
    with FileBackend(root) as backend:
        record_epochs(backend)
        backend.compact()
    (base,) = (root / "clusters/default/log").glob("*.base")
    data = bytearray(base.read_bytes())
    data[data.index(b"1-gone.lock")] ^= 1
    base.write_bytes(data)
    with FileBackend(root) as backend:
        mended(backend, root.as_uri(), tmp_path / "storage", 7)
        with FileBackend(root) as other:
            other.compact()
        found = backend.get(keys.EPOCH)
        assert found is not None
        assert decode(EpochRecord, found.value, keys.EPOCH).epoch == 9


# -- a server that is away when a master starts ----------------------------------------------------


def begins_later(server: EtcdServer | ZooKeeperServer, storage: Path) -> None:
    """A master starts while the server is down; it says so once, and leads when the server is up.
    Another one is told to end meanwhile."""
    with Masters(server.url(), cluster=f"later-{uuid.uuid4().hex}", storage=storage) as masters:
        server.kill()
        early, ended = masters.start("early"), masters.start("ended")

        def waits(master: MasterProcess) -> bool:
            return "waiting for it" in master.errors()

        for master in (early, ended):
            until(partial(waits, master), "it says that it waits")
        ended.process.terminate()
        assert ended.process.wait(BOUND) == 0
        server.start()
        masters.event(lambda event: event.kind == "leading", "it leads")
        said = early.errors().splitlines()
    (waited,) = [json.loads(line) for line in said if "no server listens at" in line]
    assert waited["kind"] == "waiting"


def test_an_etcd_that_is_away_at_first(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """B4, D5: a master that starts before its server does is no worse off than one that runs."""
    begins_later(etcd_server, tmp_path)


def test_a_zookeeper_that_is_away_at_first(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """B4, D5: the same on ZooKeeper."""
    begins_later(zookeeper_server, tmp_path)


def test_an_etcd_that_hangs_at_first(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """B4, D5: the same for a server that takes connections and says nothing."""
    url = with_option(etcd_server.url(), "timeout=1")
    with Masters(url, cluster=f"later-{uuid.uuid4().hex}", storage=tmp_path) as masters:
        etcd_server.pause()
        early = masters.start("early")
        until(lambda: "waiting for it" in early.errors(), "it says that it waits")
        etcd_server.resume()
        masters.event(lambda event: event.kind == "leading", "it leads")


@pytest.mark.parametrize("url", ["etcd://no.such.invalid", "zookeeper://no.such.invalid"])
def test_a_server_that_nobody_knows(url: str) -> None:
    """B4: a wrong name is no outage: the master ends and says so."""
    ends_at_once(url, "'no.such.invalid' is not known")


def test_a_path_that_there_is_not(zookeeper_server: ZooKeeperServer) -> None:
    """B4: nor a wrong path."""
    ends_at_once(zookeeper_server.url("nowhere"), "does not exist")


def ends_at_once(url: str, why: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "--backend", url, "master"],
        capture_output=True, text=True, timeout=BOUND, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1
