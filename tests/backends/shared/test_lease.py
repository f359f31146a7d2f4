"""The lease: a leader knows by its own clock, before another one can lead, that it is over."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from jrs.backends.remote.guardian import Guardian
from jrs.backends.shared.lease import SAFE, LeadershipLease
from jrs.contract.clock import Deadline, lease_time
from jrs.contract.errors import Fenced, JrsError, OutcomeUnknown, Unavailable
from jrs.contract.leadership import Lifeline
from jrs.contract.operations import Fence
from tests.recovery.support import gone
from tests.support import BOUND, until


class Session:
    """A session whose server the test plays."""

    def __init__(self) -> None:
        self.fails: JrsError | None = None
        self.hangs = threading.Event()
        self.beats = 0
        self.ended = 0

    def beat(self, deadline: Deadline) -> None:
        if self.hangs.is_set():
            assert deadline.remaining() < 3600
            while self.hangs.is_set() and not deadline.expired:
                self.hangs.wait(0.01)
            raise Unavailable("no answer")
        if self.fails:
            raise self.fails
        self.beats += 1

    def end(self) -> None:
        self.ended += 1
        if self.fails:
            raise self.fails


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def serve(
    session: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., LeadershipLease]]:
    with ExitStack() as stack:

        def start(ttl: float, sent: float | None = None) -> LeadershipLease:
            notes = tmp_path_factory.mktemp("guardian") / "notes"
            guardian = Guardian("tests.backends.remote.enders", {"notes": str(notes)}, ttl)
            lease = LeadershipLease(
                7,
                Fence(7, 70),
                ttl=ttl,
                sent=lease_time() if sent is None else sent,
                beat=session.beat,
                end=session.end,
                held=guardian.lifeline,
                guardian=guardian,
            )
            stack.callback(lease.resign)
            return lease

        yield start


def test_it_lasts_as_long_as_heartbeats_are_acknowledged(
    serve: Callable[..., LeadershipLease], session: Session
) -> None:
    """Many times its ttl, here."""
    lease = serve(1.0)
    until(lambda: session.beats >= 15, "three ttls pass")
    assert not lease.lost.is_set()
    assert lease.valid_until > lease_time()


@pytest.mark.parametrize("fails", [Unavailable("down"), OutcomeUnknown("cut off")])
def test_it_is_over_by_its_own_clock_when_nobody_answers(
    serve: Callable[..., LeadershipLease], session: Session, fails: JrsError
) -> None:
    """Some ttl after the last heartbeat was *sent*, less what ending the attempts takes."""
    lease = serve(1.0)
    until(lambda: session.beats >= 2, "it beats")
    session.fails = fails
    assert lease.lost.wait(BOUND)
    assert lease_time() >= lease.valid_until


def test_it_is_over_although_a_heartbeat_hangs(
    serve: Callable[..., LeadershipLease], session: Session
) -> None:
    lease = serve(1.0)
    session.hangs.set()
    assert lease.lost.wait(BOUND)
    session.hangs.clear()


def test_it_counts_from_when_the_campaign_was_sent(serve: Callable[..., LeadershipLease]) -> None:
    """An answer that took longer than the ttl to arrive: over before it begins."""
    lease = serve(30.0, lease_time() - 30.0)
    assert lease.lost.wait(BOUND)
    assert lease.valid_until <= lease_time()


def test_a_refused_heartbeat_ends_it_at_once(
    serve: Callable[..., LeadershipLease], session: Session
) -> None:
    lease = serve(3.0)
    session.fails = Fenced("a newer epoch exists")
    assert lease.lost.wait(BOUND)
    assert lease_time() < lease.valid_until


def test_resigning_ends_the_session_once_and_its_guardian(
    serve: Callable[..., LeadershipLease], session: Session
) -> None:
    """Also if the session cannot be ended now: it ends by itself."""
    lease = serve(30.0)
    assert isinstance(lease._guardian, Guardian)
    guardian = lease._guardian.pid
    session.fails = Unavailable("down")
    lease.resign()
    lease.resign()

    assert session.ended == 1
    assert lease.lost.is_set()
    # It is left to end the session itself, and goes when that is done.
    until(lambda: gone([guardian]), "the guardian goes")
    assert not [t for t in threading.enumerate() if t.name.endswith("-e7")]


def test_other_processes_see_the_moment_move(
    serve: Callable[..., LeadershipLease], session: Session
) -> None:
    lease = serve(30.0)
    line = lease.lifeline
    assert isinstance(line, Lifeline)

    def moment() -> float:
        return float(struct.unpack("d", os.pread(line.until, 8, 0))[0])

    first = moment()
    assert first == lease.valid_until
    assert 0 < first - lease_time() <= 30.0 * SAFE
    until(lambda: moment() > first, "a heartbeat moves it")


def test_it_is_over_when_its_host_has_slept(
    serve: Callable[..., LeadershipLease], session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S8: the monotonic clock does not move meanwhile, and other clocks do."""
    lease = serve(600.0)
    now = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: now(clock) + 3600.0)

    assert lease.lost.wait(BOUND)
