"""The guardian, with real processes: it ends a dead master's session, and only that, and goes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from jrs.backends.remote.guardian import Guardian
from jrs.backends.shared.lease import LeadershipLease
from jrs.contract.errors import Unavailable
from jrs.contract.operations import Fence
from tests.recovery.support import gone
from tests.support import BOUND, descriptors, until

SECRET = b"\x00the secret\xff"
ENDED = f"ended {SECRET!r}"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
"""In which a master finds the modules of these tests."""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def lines(notes: Path) -> list[str]:
    return notes.read_text().splitlines()


@pytest.fixture
def guard(notes: Path) -> Iterator[Callable[..., Guardian]]:
    """Start a guardian in the test's own process; dismissed when the test ends."""
    with ExitStack() as stack:

        def start(ttl: float = 3600.0, **config: object) -> Guardian:
            made = Guardian("tests.backends.remote.enders", {"notes": str(notes), **config}, ttl)
            stack.callback(made.dismiss)
            return made

        yield start


class Master:
    """A process that has a guardian, and perhaps another process that has its lifeline open."""

    def __init__(
        self, notes: Path, *, then: str = "", failures: int = 0, ready: bool = True
    ) -> None:
        config = {"notes": str(notes), "failures": failures}
        program = f"""
        import subprocess, sys, os, time
        from jrs.backends.remote.guardian import Guardian
        guardian = Guardian("tests.backends.remote.enders", {config!r}, 3600.0)
        guardian.guard({SECRET!r})
        {then}
        print(guardian.pid, flush=True)
        sys.stdin.read()
        """
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        assert self.process.stdout is not None
        self.guardian = int(self.process.stdout.readline())
        if ready:
            until(lambda: lines(notes), "the guardian is ready")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_it_ends_the_session_of_a_killed_master_and_goes(notes: Path) -> None:
    master = Master(notes)
    master.kill()

    until(lambda: ENDED in lines(notes), "the session is ended")
    until(lambda: gone([master.guardian]), "the guardian goes")


def test_modules_of_the_working_directory(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `queue.py` among the jobs of a user is not what it imports as `queue`."""
    (tmp_path / "queue.py").write_text("raise SystemExit('this is a job')")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # As for `jrs`, which is a script elsewhere.
    monkeypatch.chdir(tmp_path)
    master = Master(notes)
    master.kill()

    until(lambda: ENDED in lines(notes), "the session is ended")


def test_it_ends_the_session_of_a_master_that_dies_at_once(notes: Path) -> None:
    """Before it has prepared itself, which it does when the master has started."""
    Master(notes, ready=False).kill()

    until(lambda: ENDED in lines(notes), "the session is ended")


def test_it_tries_again_when_the_session_cannot_be_ended_yet(notes: Path) -> None:
    Master(notes, failures=2).kill()

    until(lambda: ENDED in lines(notes), "the session is ended")


def test_it_waits_until_the_lifeline_is_closed(notes: Path, tmp_path: Path) -> None:
    """The session ends after the last process that ends attempts has gone, not before."""
    holder = tmp_path / "holder"
    master = Master(
        notes,
        then='held = subprocess.Popen(["sleep", "600"], stdout=-3, pass_fds=[guardian.lifeline]); '
        f'open({str(holder)!r}, "w").write(str(held.pid))',
    )
    master.kill()
    assert not gone([master.guardian])
    assert ENDED not in lines(notes)

    os.kill(int(holder.read_text()), signal.SIGKILL)
    until(lambda: ENDED in lines(notes), "the session is ended")


@pytest.mark.parametrize(
    "lives",
    ["os.close(0); os.execvp('sleep', ['sleep', '{0}'])", "time.sleep({0}); os._exit(0)"],
    ids=["another program", "the same program"],
)
def test_a_forked_child_does_not_keep_it_waiting(notes: Path, tmp_path: Path, lives: str) -> None:
    """PySpark forks; a child that lives on must not hold the session of its dead parent."""
    child = tmp_path / "child"
    child.touch()
    note = f"open({str(child)!r}, 'w').write(str(os.getpid()))"
    lives = lives.format(2 * BOUND)
    Master(notes, then=f"if os.fork() == 0: {note}; os.close(1); {lives}").kill()
    pid = int(until(child.read_text, "the child lives"))
    until(lambda: ENDED in lines(notes), "the session is ended")
    assert not gone([pid])
    os.kill(pid, signal.SIGKILL)


def test_dismissed_it_ends_nothing(guard: Callable[..., Guardian], notes: Path) -> None:
    guardian = guard()
    guardian.guard(SECRET)
    guardian.dismiss()
    guardian.dismiss()

    assert gone([guardian.pid])
    assert lines(notes) in ([], ["ready"])


def test_without_a_secret_it_ends_nothing(notes: Path) -> None:
    """A master that dies before its session exists."""
    program = (
        "import os; from jrs.backends.remote.guardian import Guardian; "
        f"made = Guardian('tests.backends.remote.enders', {{'notes': {str(notes)!r}}}, 60.0);"
        "print(made.pid, flush=True);"
        "os._exit(9)"
    )
    died = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=ENVIRONMENT, check=False
    )

    until(lambda: gone([int(died.stdout)]), "the guardian goes")
    assert lines(notes) in ([], ["ready"])


def test_it_goes_when_it_hears_of_no_heartbeat(guard: Callable[..., Guardian], notes: Path) -> None:
    """A master that hangs has lost its session by itself."""
    guardian = guard(ttl=0.5)
    guardian.guard(SECRET)

    until(lambda: gone([guardian.pid]), "the guardian goes")
    assert lines(notes) == ["ready"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_meant_for_the_master_leave_it_alone(
    guard: Callable[..., Guardian], notes: Path, number: int
) -> None:
    guardian = guard()
    guardian.guard(SECRET)
    until(lambda: lines(notes), "the guardian is ready")
    os.kill(guardian.pid, number)
    guardian.beat()

    assert not gone([guardian.pid])


def test_its_death_is_noticed_and_repaired(guard: Callable[..., Guardian], notes: Path) -> None:
    """The next heartbeat starts another, which knows the secret and hears of the same holders."""
    guardian = guard()
    guardian.guard(SECRET)
    until(lambda: lines(notes), "the guardian is ready")
    first, lifeline = guardian.pid, guardian.lifeline
    os.kill(first, signal.SIGKILL)

    def repaired() -> bool:
        guardian.beat()
        return guardian.pid != first

    until(repaired, "another is started")
    assert guardian.lifeline == lifeline
    until(lambda: lines(notes) == ["ready"] * 2, "the other is ready")
    assert not gone([guardian.pid])


def test_a_stopped_guardian_does_not_stop_its_master(guard: Callable[..., Guardian]) -> None:
    guardian = guard()
    os.kill(guardian.pid, signal.SIGSTOP)
    for _ in range(20_000):
        guardian.beat()
    guardian.dismiss()

    assert gone([guardian.pid])


def test_the_secret_is_in_no_process_list(guard: Callable[..., Guardian], notes: Path) -> None:
    guardian = guard(password="s3cret")
    guardian.guard(b"s3cret")
    until(lambda: lines(notes), "the guardian is ready")
    for file in ("cmdline", "environ"):
        assert b"s3cret" not in Path(f"/proc/{guardian.pid}/{file}").read_bytes()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Leave this process none beyond those that it has open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as filled:
        lowest = os.open(os.devnull, os.O_RDONLY)
        filled.callback(os.close, lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_long_password(guard: Callable[..., Guardian], notes: Path) -> None:
    """A configuration that is longer than an atomic write to a pipe reaches the guardian."""
    guard(password="x" * 200_000)
    until(lambda: lines(notes), "the guardian is ready")


def test_without_descriptors_a_candidate_is_told_to_wait(notes: Path) -> None:
    """D1: a master without descriptors ended with a raw "Too many open files"."""
    before = descriptors()
    with no_descriptors(), pytest.raises(Unavailable, match="Too many open files"):
        Guardian("tests.backends.remote.enders", {"notes": str(notes)}, 3600.0)
    with no_descriptors(), pytest.raises(Unavailable, match="Too many open files"):
        LeadershipLease(
            1, Fence(1, 1), ttl=5.0, sent=0.0, beat=lambda _: None, end=lambda: None, held=0
        )  # fmt: skip
    assert descriptors() <= before


def test_one_that_cannot_be_started_again_now_is_started_later(
    guard: Callable[..., Guardian], notes: Path
) -> None:
    """D1: the same for a guardian that died while its master leads."""
    guardian = guard()
    until(lambda: lines(notes), "the guardian is ready")
    first = guardian.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: gone([first]), "it is dead")
    with no_descriptors(), pytest.raises(Unavailable, match="Too many open files"):
        guardian.beat()
    guardian.beat()
    assert guardian.pid != first
