"""A large segment is compacted while many processes look on: one of them writes the next base."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.base_writer import write_next
from jrs.backends.file.compaction import Compaction
from jrs.backends.file.format.lines import sealed
from jrs.backends.file.replica import NEVER, Replica
from jrs.contract.errors import Conflict, CorruptRecord, Unavailable
from jrs.contract.operations import Check, Create, Delete, Update
from jrs.testing.contract import BOUND
from jrs.testing.processes import children
from jrs.testing.worker import Worker
from tests.crash.forms import begin_in_old_form
from tests.support import until

SIZE = 6 << 20
"""Bytes of the segment: less than a process seals by itself."""
TTL = 15.0
"""Of a leader that is to keep its lead, on a machine that all of these processes keep busy."""
VALUE = b"v" * 4000
COUNT = SIZE // 4000


@pytest.fixture(params=["format 2", "format 3"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def filled(root: Path, form: str = "format 3") -> Path:
    """Make a store whose next base is large; return the folder of its log."""
    if form == "format 2":
        begin_in_old_form(root)
    with FileBackend(root, seal_at=NEVER) as backend:
        futures = [backend.commit_async(Create(f"k/{n}", VALUE)) for n in range(COUNT)]
        for future in futures:
            future.result(BOUND)
    return root / "clusters/default/log"


def seal(log: Path) -> None:
    with closing(Replica(log, seal_at=NEVER)) as replica:
        replica.catch_up()
        replica.segment.log.write_seal()


def bases(log: Path) -> list[str]:
    return [n for n in os.listdir(log) if n[0] not in ".9" and n.endswith((".base", ".run"))]


COUNT_WRITERS = """
from jrs.backends.file import compaction
real = compaction._started

def started(folder, turn, **options):
    with open({path!r}, "a") as file:
        file.write("started\\n")
    return real(folder, turn, **options)

compaction._started = started
"""
"""What a worker runs first, to note each process that it starts for writing a base."""

STOP_WRITERS = """
from jrs.host import helper_process
command = helper_process.command

def stopped(*arguments, **options):
    return ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *command(*arguments, **options)]

helper_process.command = stopped
"""
"""What a worker runs first, to have each process that it starts for writing a base stop itself."""


def test_one_process_writes_the_next_base(tmp_path: Path, form: str) -> None:
    """B1: of the processes that see a seal without a base one writes it; all answer, and the leader
    keeps its lead."""
    log = filled(tmp_path, form)
    writers = tmp_path / "writers"
    count = COUNT_WRITERS.format(path=str(writers))
    with ExitStack() as stack:
        url = tmp_path.as_uri()
        workers = [stack.enter_context(Worker(url, "default", before=count)) for _ in range(4)]
        workers[0].lead("leader", TTL)
        for worker in workers:
            assert worker.get("k/0") is not None
        seal(log)
        for worker in workers:
            worker.send("get", "k/1")
        for worker in workers:
            assert received(worker) is not None
        until(lambda: bases(log), "the base is there")
        assert writers.read_text().split() == ["started"]
        assert len(bases(log)) == 1
        assert workers[0].call("lost", 0.0) is False


def received(worker: Worker) -> object:
    """Return the reply to a look-up, which on a busy machine is asked for more than once."""
    with suppress(Unavailable):
        return worker.receive()
    return until(lambda: answered(worker), "the base is there")


def answered(worker: Worker) -> object:
    with suppress(Unavailable):
        return worker.get("k/1")
    return None


def test_a_writer_that_dies_is_followed_by_another(tmp_path: Path, form: str) -> None:
    """B1: the lock on the folder ends with the writer; the next process writes the base."""
    log = filled(tmp_path, form)
    with (
        Worker(tmp_path.as_uri(), "default", before=STOP_WRITERS) as first,
        Worker(tmp_path.as_uri(), "default") as second,
    ):
        for worker in (first, second):
            assert worker.get("k/0") is not None
        seal(log)
        first.send("get", "k/1")
        (writer, *_) = until(lambda: children(first.pid), "the base is being written")
        second.send("get", "k/1")
        os.kill(writer, signal.SIGKILL)
        first.kill()
        assert received(second) is not None
        until(lambda: second.get("k/1") and bases(log), "the base is there")
        assert len(bases(log)) == 1


# -- a segment that continues another one ----------------------------------------------------


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log whose newest segment is sealed, and whose next base nobody writes in this process."""
    log = filled(tmp_path)
    seal(log)
    monkeypatch.setattr(Compaction, "begin", lambda *_, **__: False)
    return log


def parts(log: Path) -> list[Path]:
    """Return the tail and the header of the newest segment."""
    return [max(log.glob("*.tail")), max(log.glob("*.segment"))]


def work(backend: FileBackend) -> dict[str, bytes]:
    """Change records of the sealed segment and of the next one; return what is there then."""
    first = backend.get("k/1")
    assert first is not None
    backend.commit(Update("k/1", b"new", first.version), Create("l/1", b"later"))
    backend.commit(Delete("k/2", None))
    backend.commit(Delete("k/3", None))
    backend.commit(Create("k/3", b"again"))
    backend.commit(Create("l/2", b"gone soon"))
    backend.commit(Delete("l/2", None))
    with pytest.raises(Conflict):
        backend.commit(Check("k/1", first.version))
    with pytest.raises(Conflict):
        backend.commit(Create("k/4", b"there already"))
    expected = {f"k/{n}": VALUE for n in range(COUNT) if n != 2}
    return expected | {"k/1": b"new", "k/3": b"again", "l/1": b"later"}


def held(backend: FileBackend) -> dict[str, bytes]:
    return {record.key: record.value for record in backend.scan("")}


def test_commits_continue_while_the_next_base_is_written(tmp_path: Path, log: Path) -> None:
    """B1: commits, reads and openings continue behind the seal; with the base nothing changes, and
    what is before it is removed."""
    with FileBackend(tmp_path) as backend, FileBackend(tmp_path) as other:
        expected = work(backend)
        assert not bases(log)
        assert held(other) == held(backend) == expected
        with FileBackend(tmp_path) as opened:
            assert held(opened) == expected
            versions = {record.key: record.version for record in opened.scan("")}
        write_next(log)
        for handle in (backend, other):
            segment = handle.replica.segment
            until(lambda: handle.get("k/1") and not segment.pending, "it has the new base")  # noqa: B023
            assert held(handle) == expected
            assert {record.key: record.version for record in handle.scan("")} == versions
        assert len(bases(log)) == 1
        assert len(list(log.glob("*.tail"))) == 1
        other.commit(Delete("k/3", None))
        assert backend.get("k/3") is None
    with FileBackend(tmp_path) as opened:
        assert held(opened) == {k: v for k, v in expected.items() if k != "k/3"}


def test_two_segments_are_not_compacted_at_once(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1: a segment is sealed when it has its base; one that another handle
    sealed sooner waits for it."""
    with FileBackend(tmp_path, seal_at=1) as backend:
        expected = work(backend)
        assert len(list(log.glob("*.tail"))) == 2
        seal(log)
        write_next(log)
        monkeypatch.undo()
        assert held(backend) == expected
        backend.commit(Create("l/3", b""))
        backend.compact()
        assert held(backend) == expected | {"l/3": b""}
        assert len(bases(log)) == len(backend.replica.segment.base.runs)


@pytest.mark.parametrize("which", [0, 1], ids=["tail", "header"])
@pytest.mark.parametrize("when", ["pending", "ended"])
@pytest.mark.parametrize("how", ["missing", "flipped"])
def test_one_damaged_file_of_a_segment(
    tmp_path: Path, log: Path, which: int, when: str, how: str
) -> None:
    """D3: while a segment continues another one, and afterwards, of its two small files each tells
    that the other is lost or damaged; nothing that was committed goes in silence."""
    with FileBackend(tmp_path) as backend:
        expected = work(backend)
    if when == "ended":
        write_next(log)
        with FileBackend(tmp_path) as backend:
            assert held(backend) == expected
    path = parts(log)[which]
    data = path.read_bytes()
    path.unlink()
    if how == "flipped":
        path.write_bytes(data[:12] + bytes([data[12] ^ 4]) + data[13:])
    if (which, how) == (0, "missing"):
        with pytest.raises(Unavailable, match=f"{path.name} is missing"):
            FileBackend(tmp_path).get("k/1")
        return
    with FileBackend(tmp_path) as backend:
        assert held(backend) == expected
        assert backend.replica.segment.flaws or how == "missing"
        write_next(log)
        assert held(backend) == expected
    assert parts(log)[1].read_bytes().count(b":") > 2


@pytest.mark.parametrize("lost", [1, 40, 60_000], ids=["a byte", "the seal", "commits"])
def test_a_sealed_log_that_was_cut(
    tmp_path: Path, log: Path, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: the segment that follows shows that the end of a sealed one is missing; an operator may
    continue without it."""
    with FileBackend(tmp_path) as backend:
        work(backend)
    sealed = min(log.glob("*.tail"))
    os.truncate(sealed, sealed.stat().st_size - lost)
    with FileBackend(tmp_path) as backend:
        with pytest.raises(CorruptRecord, match="no seal ends it"):
            backend.get("k/1")
        assert any("damaged at byte" in line for line in backend.check())
        backend.accept_damage()
        assert backend.get("l/1") is not None
        monkeypatch.undo()
        list(backend.check())
        assert len(bases(log)) == 1
        assert backend.get("l/1") is not None


def test_a_segment_of_another_log_is_refused(tmp_path: Path, log: Path) -> None:
    """D4: a tail in the right place that belongs to another log."""
    with FileBackend(tmp_path) as backend:
        work(backend)
    tail, header = parts(log)
    first, _, rest = tail.read_bytes().partition(b"\n")
    identity = first.split(b"\t")[4]
    other = sealed(first.split(b"\t", 1)[1].replace(identity, b"0" * len(identity)))
    for path in (tail, header):
        path.write_bytes(other + (rest if path is tail else b""))
    with pytest.raises(CorruptRecord, match="do not belong together"):
        FileBackend(tmp_path).get("k/1")


def test_a_failed_sync_behind_a_seal(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: of a segment that continues another one nothing is believed after a failed sync before
    both have their bases."""
    with FileBackend(tmp_path) as backend:
        expected = work(backend)
    tail = parts(log)[0]
    tail.with_suffix(".suspect").touch()
    monkeypatch.undo()
    with FileBackend(tmp_path) as backend:
        assert held(backend) == expected
        assert parts(log)[0] > tail
        assert not backend.replica.segment.pending
