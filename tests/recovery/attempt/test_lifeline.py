"""What ties attempts to a leadership whose leader cannot be reached: the moment, and the pipe."""

from __future__ import annotations

import os
import select
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.contract.clock import lease_time
from jrs.contract.leadership import Lifeline
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord
from jrs.recovery.attempt.runners.process import ProcessRunner
from jrs.recovery.attempt_main import PROGRAM
from jrs.recovery.processes import marks
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from tests.recovery.support import CLUSTER, Leader, gone, job, noted, spec
from tests.support import until


class Line:
    """A lifeline, with the ends that a backend keeps."""

    def __init__(self) -> None:
        moment = os.memfd_create("moment", os.MFD_CLOEXEC)
        self.ears, held = os.pipe2(os.O_CLOEXEC)
        self.given = Lifeline(until=moment, held=held)
        self._silent = threading.Event()
        self._move()
        self.speak()

    def speak(self) -> None:
        self._silent.clear()
        self._thread = threading.Thread(target=self._beat)
        self._thread.start()

    def _move(self) -> None:
        os.pwrite(self.given.until, struct.pack("d", lease_time() + 2.0), 0)

    def _beat(self) -> None:
        while not self._silent.wait(0.1):
            self._move()

    def fall_silent(self) -> None:
        self._silent.set()
        self._thread.join()

    def let_go(self) -> None:
        os.close(self.given.held)

    @property
    def is_held(self) -> bool:
        return not select.select([self.ears], [], [], 0)[0]

    def close(self) -> None:
        self.fall_silent()
        os.close(self.given.until)
        os.close(self.ears)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


@pytest.fixture
def leader(tmp_path: Path, line: Line) -> Iterator[Leader]:
    """A leader with the lifeline, and the job "job" that hangs in a process of its own."""
    url = (tmp_path / "store").as_uri()
    with open_backend(url, cluster=CLUSTER) as backend:
        runner = ProcessRunner(url, PROGRAM)
        with Leader(backend, tmp_path / "jobs", runner=runner) as made:
            made.leadership.lifeline = line.given
            pids = str(tmp_path / "pids")
            JobCatalog(backend).submit(spec("job", job("hang"), arguments={"pids": pids}))
            yield made


def test_an_attempt_ends_when_its_leadership_is_over_although_its_master_is_not(
    leader: Leader, line: Line, tmp_path: Path
) -> None:
    """A master that was cut off does nothing at all: the watchdog ends the attempt by itself."""
    first = noted(tmp_path / "pids", 1)
    born = time.monotonic()
    until(lambda: time.monotonic() > born + 3.0, "the first moment has passed")
    assert not gone(first)

    line.fall_silent()
    until(lambda: gone(first), "the watchdog ends it")


def test_the_end_of_a_leadership_is_no_death_of_the_job(
    leader: Leader, line: Line, tmp_path: Path
) -> None:
    """B7: an attempt that its watchdog has ended counts for nothing against its job, which starts
    again as soon as its leader is one again."""
    first = noted(tmp_path / "pids", 1)
    line.fall_silent()
    until(lambda: gone(first), "the watchdog ends it")
    line.speak()
    noted(tmp_path / "pids", 2)
    record = leader.backend.get(keys.ATTEMPTS + "job")
    assert record is not None

    assert decode(AttemptRecord, record.value, record.key).deaths == 0
    assert leader.said("died") == []


def test_nobody_lets_go_of_the_pipe_before_the_attempt_is_dead(
    leader: Leader, line: Line, tmp_path: Path
) -> None:
    """B10: what waits for the end of the pipe finds every process of the attempt gone, also if its
    watchdog was killed: the attempt holds the pipe itself."""
    running = noted(tmp_path / "pids", 1)
    line.let_go()
    assert line.is_held

    for pid in running:
        held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        assert os.readlink(f"/proc/self/fd/{line.ears}") in held
    assert leader.stop()
    until(lambda: not line.is_held, "attempt and watchdog let go")
    assert marks.marked(marks.mark_of_cluster(leader.backend.url, CLUSTER)) == []
