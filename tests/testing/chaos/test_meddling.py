"""The disk and the clock of a host's Python processes, as programs see them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from jrs.testing.chaos.faults import no_descriptors
from jrs.testing.chaos.meddling import Meddler, Meddling
from tests.testing.chaos.test_harm import OneHost

AHEAD = 1e7

PROGRAM = """
import sys, time
from datetime import date, datetime, timezone

class Of(datetime):
    clock = time.time

utc = timezone.utc
print(time.time())
print(time.time_ns() / 1e9)
print(time.clock_gettime(time.CLOCK_REALTIME))
print(time.clock_gettime_ns(time.CLOCK_REALTIME) / 1e9)
print(time.mktime(time.localtime()))
print(time.mktime(time.strptime(time.ctime())))
print(time.mktime(time.strptime(time.asctime())))
print(time.mktime(time.strptime(time.strftime("%c"), "%c")))
print(time.mktime(time.gmtime()[:8] + (0,)) - time.mktime(time.gmtime(0)[:8] + (0,)))
print(datetime.now().timestamp())
print(datetime.now(utc).timestamp())
print(datetime.now(tz=utc).timestamp())
print(datetime.today().timestamp())
print(Of.now().timestamp())
print(Of(2020, 1, 1).clock())
print(datetime.utcnow().replace(tzinfo=utc).timestamp())

import logging, pickle
assert logging.Formatter().formatTime(logging.makeLogRecord({}))
assert type(datetime.now()) is datetime and type(Of.now()) is Of
assert pickle.loads(pickle.dumps(datetime.now())) <= datetime.now()
assert pickle.loads(pickle.dumps(time.time)) is time.time
assert date.today() == datetime.now().date() or datetime.now().hour == 0
assert time.clock_gettime(time.CLOCK_MONOTONIC) - time.monotonic() < 60
assert time.gmtime(0)[:3] == (1970, 1, 1)
"""


def test_all_wall_clocks_jump_together(tmp_path: Path) -> None:
    """Whatever a program asks for the time; what is no wall clock does not jump."""
    program = ["-W", "ignore::DeprecationWarning", "-c", PROGRAM]
    meddler = Meddler(tmp_path / "page")
    times = []
    for skew in (0.0, AHEAD):
        meddler.show([Meddling(skew=skew)])
        env = {**os.environ, **meddler.environment({})}
        done = subprocess.run([sys.executable, *program], capture_output=True, text=True,
                              env=env, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        times.append([float(line) for line in done.stdout.split()])
    real, ahead = times

    assert len(real) == 16
    assert max(real) - min(real) < 3600
    for before, after in zip(real, ahead, strict=True):
        assert AHEAD <= after - before + 1 < AHEAD + 3600


OPENS = """
import os
os.dup2(0, 20)
print(flush=True)
input()
try:
    os.dup(0)
except OSError as error:
    print(error.errno, os.fstat(20).st_ino == os.fstat(0).st_ino, flush=True)
else:
    print("it is open", flush=True)
input()
os.close(os.dup(0))
"""


@contextmanager
def opening() -> Iterator[subprocess.Popen[str]]:
    """A process that opens a descriptor when it is told to, and again."""
    command = [sys.executable, "-c", OPENS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as made:
        try:
            yield made
        finally:
            made.kill()


def test_a_process_without_descriptors_opens_none(tmp_path: Path) -> None:
    """Numbers are free below one that it has open, and none of them is given out."""
    with opening() as one:
        assert one.stdin is not None
        assert one.stdout is not None
        one.stdout.readline()
        (fault,) = no_descriptors().faults
        harm = fault.strike(OneHost(pid=one.pid), Random(1))
        assert next(harm) == f"master {one.pid}"
        one.stdin.write("\n")
        one.stdin.flush()
        assert one.stdout.readline() == "24 True\n"
        next(harm, None)
        one.stdin.write("\n")
        one.stdin.flush()
        assert one.wait(60) == 0
        with pytest.raises(StopIteration):
            next(harm)
