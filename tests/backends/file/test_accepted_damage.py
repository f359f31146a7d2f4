"""What processes find in a log that has lost data, once an operator has accepted that."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.replica import NEVER
from jrs.contract.errors import CorruptRecord, Fenced, OutcomeUnknown, WrongState
from jrs.contract.operations import EPOCH_KEY, Create, Update
from jrs.testing.chaos.late import LateCompaction
from jrs.testing.contract import contents, lead, present
from tests.support import BOUND

MARK = b"~~"
COUNT = 20


@pytest.mark.parametrize("lost", [slice(5, 8), slice(2, 12), slice(3, 4)], ids=str)
def test_what_was_created_since_a_version(tmp_path: Path, lost: slice) -> None:
    """Commits behind lost data keep their versions: a reader that asks for those since a version
    gets each of them."""
    with FileBackend(tmp_path) as backend:
        for number in range(COUNT):
            backend.commit(Create(f"f/{number:02}", b"v" * 10 * number))
        log = backend.replica.segment.log.path
    batches = log.read_bytes().split(MARK)
    del batches[lost]
    log.write_bytes(MARK.join(batches))

    with FileBackend(tmp_path) as backend:
        with pytest.raises(CorruptRecord):
            backend.get("f/00")
        assert backend.accept_damage()
        found = backend.created_since("f/", 0)
        assert len(found) == COUNT - (lost.stop - lost.start)
        for place, record in enumerate(found):
            assert backend.created_since("f/", record.version) == found[place:]
        backend.commit(Create("f/new", b""))
        newest = [record.key for record in backend.created_since("f/", found[-1].version)]
        assert newest == [found[-1].key, "f/new"]


def flip(log: Path, part: bytes) -> None:
    """Flip a bit of `part`, which every process has read that has the log open."""
    data = bytearray(log.read_bytes())
    data[data.index(part)] ^= 1
    log.write_bytes(data)


def test_a_master_that_leads_loses_nothing(tmp_path: Path) -> None:
    """Nothing is accepted while a master leads, which may have read what is damaged now."""
    with FileBackend(tmp_path) as backend:
        with lead(backend, ttl=3600.0) as leads:
            log = backend.replica.segment.log.path
            flip(log, EPOCH_KEY.encode())
            before = sorted(path.name for path in log.parent.iterdir())
            with FileBackend(tmp_path) as other:
                with pytest.raises(CorruptRecord):
                    other.get("k")
                with pytest.raises(WrongState, match=r"a master leads .*stop all masters"):
                    other.accept_damage()
                assert sorted(path.name for path in log.parent.iterdir()) == before
            backend.commit(Create("k", b""), fence=leads.fence)
        with FileBackend(tmp_path) as other:
            assert other.accept_damage()
            assert contents(other) == contents(backend) == {}


def test_two_masters_never_lead_one_epoch(tmp_path: Path) -> None:
    """A leader whose epoch was discarded all the same loses the lead, and writes nothing."""
    with FileBackend(tmp_path) as backend, FileBackend(tmp_path) as other:
        with lead(backend, ttl=1.0) as old:
            backend.commit(Create("k", b"old"), fence=old.fence)
            (lock,) = (tmp_path / "clusters/default/leader").iterdir()
            flip(backend.replica.segment.log.path, EPOCH_KEY.encode())
            other.replica.accept_damage()  # As if the master had begun to lead in this moment.
            with lead(other, ttl=3600.0) as new:
                assert new.epoch == old.epoch
                assert not lock.exists()
                assert old.lost.wait(BOUND)
                with pytest.raises(Fenced):
                    backend.commit(Create("j", b"old"), fence=old.fence)
                other.commit(Create("j", b"new"), fence=new.fence)
                assert contents(backend) == contents(other)
                assert present(backend, "j").value == b"new"


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("idle", [False, True])
def test_no_process_keeps_what_another_one_discarded(
    tmp_path: Path, pending: bool, idle: bool
) -> None:
    """A process that had read a commit before it was damaged discards it with the others, and all
    that depends on it, also where it has yet to write a base."""

    def never(folder: Path) -> LateCompaction:
        return LateCompaction(folder, lambda: False)

    with FileBackend(tmp_path, seal_at=NEVER, compaction=never) as backend:
        backend.commit(Create("damaged", b""))
        log = backend.replica.segment.log
        version = present(backend, "damaged").version
        if pending:
            log.write_seal()
        backend.commit(Update("damaged", b"new", version), Create("depends", b""))
        backend.commit(Create("stays", b""))
        assert backend.replica.segment.pending is pending
        flip(log.path, b"+damaged")
        with FileBackend(tmp_path) as other:
            assert len(other.accept_damage()) == 1
            assert not other.replica.segment.pending
            if not idle:
                backend.commit(Create("damaged", b"again"))
            assert contents(backend).keys() == {"stays"} | ({"damaged"} if not idle else set())
            assert contents(other) == contents(backend)
            backend.compact()
            assert contents(other) == contents(backend)
            assert not list(other.check())
            assert not list(log.path.parent.glob("*.suspect"))


def test_a_commit_in_the_moment_of_an_acceptance(tmp_path: Path) -> None:
    """A batch that was written in front of the seal of an acceptance is of unknown outcome."""
    with FileBackend(tmp_path) as backend:
        backend.commit(Create("k", b""))
        log = backend.replica.segment.log
        backend.replica.segment._suspects.add_from(log.start)
        with pytest.raises(OutcomeUnknown, match="discarded damage"):
            backend.commit(Create("l", b""))
        assert contents(backend).keys() == {"k", "l"}
        assert backend.replica.start > log.start
