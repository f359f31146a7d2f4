"""Die at every system call: kill -9 before and after each write, sync, link and unlink."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.base import Run
from jrs.backends.file.base.index import Trailer
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.operations import Create, Update
from jrs.testing.contract import contents
from jrs.testing.worker import Worker
from tests.crash.forms import begin_in_old_form
from tests.forks import Forks

CHILD = r"""
import json, os, signal, sys
from pathlib import Path

calls = 0
fatal, when = int(sys.argv[2]), sys.argv[3]

def deadly(name):
    real = getattr(os, name)
    def call(*arguments, **more):
        global calls
        calls += 1
        if calls == fatal and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if calls == fatal and when == "half" and name == "write":
            real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **more)
        if calls == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(os, name, call)

say = os.write
from jrs.contract.operations import Create, Delete, Update
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.format import lines
from jrs.contract.errors import Conflict

for name in ("write", "fdatasync", "fsync", "link", "unlink"):
    deadly(name)

def tell(number):
    say(1, b"%d\n" % number)

backend = FileBackend(Path(sys.argv[1]), seal_at=1 << 40)
number = 0

def commit(*ops):
    global number
    try:
        backend.commit(*ops)
    except Conflict:
        pass
    number += 1
    tell(number)

for step in range(3):
    commit(Create(f"a/{step}", b"x" * 50), Create(f"b/{step}", b""))
    commit(Update(f"a/{step}", b"y", backend.get(f"a/{step}").version), Delete(f"b/{step}"))
    commit(Create(f"a/{step}", b"refused"))
    commit(Create(f"c/{step}", b"1"))
    if step == 0:
        backend.replica.seal()
    if step == 1:
        # Another process has sealed the segment: help with its base.
        log = backend.replica.segment.log
        os.write(log.fd, log.reader.batch([lines.SEAL]))
say(1, b"calls %d\n" % calls)
backend.close()
"""


def states() -> list[dict[str, bytes]]:
    """Return what the store must hold after each commit of the child, and before the first one."""
    now: dict[str, bytes] = {}
    found = [dict(now)]
    for step in range(3):
        now |= {f"a/{step}": b"x" * 50, f"b/{step}": b""}
        found.append(dict(now))
        now[f"a/{step}"] = b"y"
        del now[f"b/{step}"]
        found.append(dict(now))
        found.append(dict(now))
        now[f"c/{step}"] = b"1"
        found.append(dict(now))
    return found


def count_calls(forks: Forks, root: Path) -> int:
    ended = forks.run(CHILD, root, 0, "never")
    said = ended.stdout.splitlines()
    assert ended.returncode == 0
    assert said[:-1] == [str(n) for n in range(1, len(states()))]
    return int(said[-1].removeprefix("calls "))


def leftovers(root: Path) -> list[str]:
    return [p.name for p in (root / "clusters/default/log").iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("when", ["before", "half", "after"])
def test_die_at_every_call(forks: Forks, tmp_path: Path, when: str) -> None:
    """Whichever call is the last one, what was acknowledged is there and at most one commit more;
    the next process helps the compaction and commits on."""
    calls = count_calls(forks, tmp_path / "whole")
    assert calls > 40
    expected = states()
    for fatal in range(1, calls + 1):
        root = tmp_path / str(fatal)
        ended = forks.run(CHILD, root, fatal, when)
        said = ended.stdout.splitlines()
        what = f"{when} call {fatal} of {calls}"
        assert ended.returncode == (-signal.SIGKILL if "calls" not in " ".join(said) else 0), what
        acknowledged = len([line for line in said if line.isdigit()])
        with FileBackend(root, seal_at=1 << 40) as backend:
            found = contents(backend)
            assert found in expected[acknowledged : acknowledged + 2], what
            backend.commit(Create("on", b"1"))
            backend.compact()
            with FileBackend(root) as other:
                assert found | {"on": b"1"} == contents(other), what
                record = other.get("on")
                assert record is not None
                other.commit(Update("on", b"2", record.version))
            assert found | {"on": b"2"} == contents(backend), what
        assert leftovers(root) == [], what


def test_die_while_creating_the_folder(forks: Forks, tmp_path: Path) -> None:
    """A process that dies while it makes the store leaves a folder that the next one completes."""
    script = (
        "import json, os, signal, sys\n"
        "from pathlib import Path\n"
        "from jrs.backends.file.backend import FileBackend\n"
        "calls = 0\n"
        "fatal = int(sys.argv[2])\n"
        "def deadly(name):\n"
        "    real = getattr(os, name)\n"
        "    def call(*a, **k):\n"
        "        global calls\n"
        "        calls += 1\n"
        "        if calls == fatal: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return real(*a, **k)\n"
        "    setattr(os, name, call)\n"
        "for name in ('mkdir', 'open', 'write', 'fsync', 'link', 'unlink', 'close'):\n"
        "    deadly(name)\n"
        "FileBackend(Path(sys.argv[1]))\n"
        "os._exit(7)\n"
    )
    for fatal in range(1, 200):
        root = tmp_path / str(fatal)
        status = forks.run(script, root, fatal).returncode
        with FileBackend(root) as backend:
            backend.commit(Create("k", b""))
        with FileBackend(root) as backend:
            assert contents(backend) == {"k": b""}
        if status == 7:
            assert fatal > 10
            return
        assert status == -signal.SIGKILL
    pytest.fail("it never came to its end")


EIO = """
import errno, os
def break_sync(times=1):
    real, left = os.fdatasync, [times]
    def fail(fd):
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd)
    os.fdatasync = fail
os.break_sync = break_sync
"""


def test_a_failed_sync(tmp_path: Path) -> None:
    """B4: a failed sync is OutcomeUnknown; the handle then opens the log again by itself, and what
    it reads back holds."""
    with Worker(tmp_path.as_uri(), "default", before=EIO) as worker:
        worker.commit(Create("before", b""))
        worker.call("run", "os.break_sync()")
        with pytest.raises(OutcomeUnknown, match="sync failed"):
            worker.commit(Create("k", b""))
        truth = {record.key for record in worker.scan("")}
        assert truth in ({"before"}, {"before", "k"})
        worker.commit(Create("l", b""))
        worker.call("compact")
        with FileBackend(tmp_path) as backend:
            assert contents(backend).keys() == truth | {"l"}


@pytest.mark.parametrize(("log_of", "base_of"), [("log", "base"), ("tail", "run")])
def test_what_a_failed_sync_left_is_written_again_before_it_is_believed(
    tmp_path: Path, log_of: str, base_of: str
) -> None:
    """B4: after a failed sync the page cache may hold what the disk does not. A process that opens
    the log shows nothing of it that is not in a base of its own writing, which is synced."""
    log = tmp_path / "clusters/default/log"
    if base_of == "base":
        begin_in_old_form(tmp_path)
    with Worker(tmp_path.as_uri(), "default", before=EIO) as worker:
        worker.commit(Create("before", b""))
        worker.call("run", "os.break_sync()")
        with pytest.raises(OutcomeUnknown):
            worker.commit(Create("k", b""))
        with FileBackend(tmp_path) as backend:
            found = contents(backend)
            (path,) = log.glob(f"*.{base_of}")
            written = Run(path, trailer=Trailer.at_the_end(path.read_bytes()))
            assert {r.key for r in written.after("", inclusive=True)} == found.keys()
            assert list(written.damage()) == []
            written.close()
            # Nothing is read from the log whose sync failed: it is gone.
            assert [p.stem for p in log.glob(f"*.{log_of}")] == [path.stem]
            assert list(log.glob("*.suspect")) == []
        assert {record.key for record in worker.scan("")} == found.keys()


def test_a_failed_sync_fails_the_whole_batch(tmp_path: Path) -> None:
    """Every commit that was in the write whose sync failed is unknown, and no other one is."""
    with Worker(tmp_path.as_uri(), "default", before=EIO) as worker:
        worker.call(
            "run",
            "from jrs.contract.operations import Create\n"
            "os.break_sync()\n"
            "fs = [server.backend.commit_async(Create(f'k/{n}', b'')) for n in range(50)]\n"
            "server.names = lambda: [type(f.exception(60)).__name__ for f in fs]\n",
        )
        names = worker.call("names")
    assert names[0] == "OutcomeUnknown"
    unknown = names.index("NoneType") if "NoneType" in names else 50
    assert set(names[:unknown]) == {"OutcomeUnknown"}
    assert set(names[unknown:]) <= {"NoneType"}
    with FileBackend(tmp_path) as backend:
        assert contents(backend).keys() >= {f"k/{n}" for n in range(unknown, 50)}


def test_a_failed_sync_of_a_reader(tmp_path: Path) -> None:
    """A reader that cannot make durable what it found shows it to nobody; it tries again."""
    with FileBackend(tmp_path) as backend:
        with Worker(tmp_path.as_uri(), "default", before=EIO) as worker:
            worker.commit(Create("a", b""))
            worker.call("run", "os.break_sync()")
            backend.commit(Create("b", b""))
            with pytest.raises(Unavailable):
                worker.get("b")
            assert worker.get("b") is not None
            worker.commit(Create("c", b""))
        assert contents(backend) == {"a": b"", "b": b"", "c": b""}


def test_a_handle_refuses_in_a_forked_child(tmp_path: Path) -> None:
    """A handle that was opened before a fork refuses there, and works on in the parent."""
    script = """
import os, sys, json, threading
from pathlib import Path
from jrs.contract.operations import Create
from jrs.backends.file.backend import FileBackend
from jrs.contract.errors import WrongProcess

backend = FileBackend(Path(sys.argv[1]))
backend.commit_async(Create("a", b"")).result(60)
pid = os.fork()
if not pid:
    refused = 0
    for call in (
        lambda: backend.get("a"),
        lambda: list(backend.scan("")),
        lambda: backend.commit(Create("b", b"")),
        lambda: backend.commit_async(Create("b", b"")),
        lambda: backend.campaign("c", ttl=1.0, stop=threading.Event()),
        lambda: backend.watch("").wait(1.0),
        lambda: backend.compact(),
    ):
        try:
            call()
        except WrongProcess:
            refused += 1
    backend.close()
    with FileBackend(Path(sys.argv[1])) as own:
        own.commit(Create("child", b""))
    os._exit(refused)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
backend.commit(Create("parent", b""))
print(json.dumps([status, sorted(r.key for r in backend.scan(""))]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == [7, ["a", "child", "parent"]]
