"""A folder of the first releases: converted offline, read back in full, then raised."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest

from jrs.backends.file import segments
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.base import Base
from jrs.backends.file.replica import NEVER
from jrs.backends.file.segments import forms
from jrs.contract.errors import WrongState
from jrs.contract.operations import Create
from jrs.records.codec import encode
from jrs.records.model import FormatRecord, MasterInfo
from tests.crash.forms import begin_in_old_form
from tests.forks import Forks

FIXTURE = Path(__file__).parent.parent / "fixtures/format_2.tar.gz"
RAISED = encode(FormatRecord(3))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "format_2"


def expected() -> dict[str, bytes]:
    found = {f"results/{n:03}": f"~value\t{n}\n".encode() * 3 for n in range(120)}
    found |= {f"results/{n:03}": b"new" for n in range(0, 120, 3)}
    for number in range(1, 120, 9):
        del found[f"results/{number:03}"]
    return found | {"dirty/000": b""}


def held(backend: FileBackend) -> dict[str, bytes]:
    return {r.key: r.value for r in backend.scan("") if r.key not in KEPT}


def form_of(backend: FileBackend) -> segments.Form:
    return backend.replica.segment.log.form


KEPT = {"leader/epoch", segments.VERSION_KEY}


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_it_is_converted_read_and_raised(old: Path) -> None:
    """A folder made by the first releases reads back in full, in its old form and in the new one;
    the form changes with the first segment behind the raised version."""
    log = old / "clusters/default/log"
    before = files(log)
    with FileBackend(old, seal_at=NEVER) as backend:
        assert held(backend) == expected()
        assert list(backend.check()) == []
        assert files(log) == before
        assert json.loads((old / "jrs.json").read_text())["version"] == 2
        backend.compact()
        assert (held(backend), form_of(backend)) == (
            expected(),
            segments.Form.LINES,
        )
        versions = {r.key: r.version for r in backend.scan("")}
        backend.commit(Create(segments.VERSION_KEY, RAISED))
        backend.compact()
        assert (held(backend), form_of(backend)) == (
            expected(),
            segments.Form.BATCHES,
        )
        assert versions == {r.key: r.version for r in backend.scan("") if r.key in versions}
        backend.commit(Create("more", b"1"))
    with FileBackend(old) as backend:
        assert held(backend) == expected() | {"more": b"1"}
        assert list(backend.check()) == []


def test_a_reader_converts_nothing(old: Path) -> None:
    """Without `create` an old folder is refused in words, and left as it is."""
    before = files(old)
    with pytest.raises(WrongState, match="older jrs: stop all processes"):
        FileBackend(old, create=False)
    assert files(old) == before


def test_a_leader_of_an_older_jrs_is_not_pushed_out(old: Path) -> None:
    """While a lock file of the folder is locked, it is not converted."""
    path = old / "clusters/default/leader/7-x.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    before = files(old)
    with pytest.raises(WrongState, match="a master of it still leads"):
        FileBackend(old)
    assert files(old) == before
    os.close(fd)
    FileBackend(old).close()


def test_a_registered_master_is_not_pushed_out(tmp_path: Path) -> None:
    """While a master that registered from this host is alive, the folder is not converted."""
    import time

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        info = MasterInfo("m", socket.gethostname(), process.pid, time.time() + 5, time.time())
        begin_in_old_form(tmp_path)
        with FileBackend(tmp_path) as backend:
            backend.commit(Create("masters/m", encode(info)))
        (tmp_path / "jrs.json").write_text('{"format": "jrs", "version": 1}')
        with pytest.raises(WrongState, match="is alive"):
            FileBackend(tmp_path)
        process.kill()
        process.wait()
        FileBackend(tmp_path).close()


DEADLY = """
import os, signal, sys
from pathlib import Path
from jrs.backends.file.backend import FileBackend
calls = 0
fatal, when = int(sys.argv[2]), sys.argv[3]
def deadly(name):
    real = getattr(os, name)
    def call(*a, **k):
        global calls
        calls += 1
        if calls == fatal and when == "before": os.kill(os.getpid(), signal.SIGKILL)
        mine = calls
        try:
            return real(*a, **k)
        finally:  # Behind a call that fails, too.
            if mine == fatal: os.kill(os.getpid(), signal.SIGKILL)
    setattr(os, name, call)
for name in ("mkdir", "write", "fsync", "link", "unlink", "replace", "rename"):
    deadly(name)
FileBackend(Path(sys.argv[1]))
os._exit(7)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_call(forks: Forks, tmp_path: Path, when: str) -> None:
    """Killed at any system call, the next conversion completes it; nothing is lost."""
    for fatal in range(1, 60):
        root = tmp_path / str(fatal)
        with tarfile.open(FIXTURE) as archive:
            archive.extractall(root, filter="data")
        root /= "format_2"
        status = forks.run(DEADLY, root, fatal, when).returncode
        with FileBackend(root, seal_at=NEVER) as backend:
            assert held(backend) == expected(), fatal
            backend.commit(Create("on", b""))
        if status == 7:
            assert fatal > 6
            return
        assert status == -signal.SIGKILL
    pytest.fail("it never came to its end")


def test_a_process_that_slept_through_the_conversion(old: Path) -> None:
    """What the first releases would do with the folder still open: they find a segment without a
    log, refuse, and write nothing behind the first segment that they cannot read."""
    log = old / "clusters/default/log"
    with FileBackend(old, seal_at=NEVER) as backend:
        backend.commit(Create(segments.VERSION_KEY, RAISED))
        backend.compact()
        names = sorted(p.name for p in log.iterdir())
    bases = [int(name[:20]) for name in names if name.endswith(".base") and len(name) == 25]
    assert max(bases) == int(segments.FENCE[:20])
    assert segments.FENCE.replace("base", "log") not in names


def test_a_base_of_the_old_form_behind_the_raise(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that knows the old form alone, and has the folder open, may be the one that writes
    the base behind the raise: nobody begins that segment again, and the next one is of the new
    form."""
    log = old / "clusters/default/log"
    with FileBackend(old, seal_at=NEVER) as backend:
        backend.commit(Create(segments.VERSION_KEY, RAISED))
        with monkeypatch.context() as context:
            context.setattr(forms, "BATCHES_SINCE", 4)
            backend.compact()
        assert form_of(backend) == segments.Form.LINES
        backend.commit(Create("more", b"1"))
        start = segments.newest(log)
        segments.write_base(log, segments.Header(start, b""), Base(), [])
        assert not segments.log_path(log, start, segments.Form.BATCHES).exists()
        backend.compact()
        assert form_of(backend) == segments.Form.BATCHES
        assert held(backend) == expected() | {"more": b"1"}
        assert list(backend.check()) == []
