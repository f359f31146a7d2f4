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
from jrs.backends.shared import lease as lease_module
from jrs.backends.shared.lease import SAFE, LeadershipLease
from jrs.contract.clock import Deadline, lease_time
from jrs.contract.errors import Fenced, OutcomeUnknown, Unavailable
from jrs.contract.leadership import Lifeline
from jrs.contract.operations import Fence
from tests.recovery.support import gone
from tests.support import BOUND, FakeClock, descriptors, until

TTL = 60.0
BEATS = 1000
"""Heartbeats in a ttl, so that a test waits for the next one for 60 ms."""


class Session:
    """A session whose server the test plays; each heartbeat takes a fifth of a ttl by `clock`."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.fails: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.hangs = threading.Event()
        self.asked = 0
        self.beats = 0
        self.ended = 0

    def beat(self, deadline: Deadline) -> None:
        self.asked += 1
        assert deadline.remaining() < 3600
        if not self.answers.is_set():
            self.hangs.set()
            # It hangs past its deadline, as a client library may.
            assert self.answers.wait(BOUND)
        if self.fails:
            raise self.fails
        self.clock.now += TTL / 5
        self.beats += 1

    def end(self) -> None:
        self.ended += 1
        if self.fails:
            raise self.fails


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(lease_module, "lease_time", clock)
    return clock


@pytest.fixture
def session(clock: FakeClock) -> Session:
    return Session(clock)


@pytest.fixture
def serve(
    session: Session, clock: FakeClock, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., LeadershipLease]]:
    with ExitStack() as stack:

        def start(
            sent: float | None = None, ttl: float = TTL, beats: int = BEATS
        ) -> LeadershipLease:
            notes = tmp_path_factory.mktemp("guardian") / "notes"
            guardian = Guardian("tests.backends.remote.enders", {"notes": str(notes)}, ttl)
            lease = LeadershipLease(
                7,
                Fence(7, 70),
                ttl=ttl,
                sent=clock() if sent is None else sent,
                beat=session.beat,
                end=session.end,
                held=guardian.lifeline,
                guardian=guardian,
                beats=beats,
            )
            stack.callback(lease.resign)
            return lease

        yield start


def test_it_lasts_as_long_as_heartbeats_are_acknowledged(
    serve: Callable[..., LeadershipLease], session: Session, clock: FakeClock
) -> None:
    """Many times its ttl, here."""
    lease = serve()
    until(lambda: session.beats >= 15, "three ttls pass")
    assert not lease.lost.is_set()
    assert lease.valid_until > clock()


def test_its_first_heartbeat_is_due_a_while_after_it_was_asked_for(
    serve: Callable[..., LeadershipLease], session: Session
) -> None:
    """On a slow link, winning takes most of a short ttl; the first heartbeat came too late."""
    lease = serve(sent=session.clock() - 1800.0, ttl=3600.0, beats=2)
    until(lambda: session.beats == 1, "it beats at once")
    assert not lease.lost.is_set()


@pytest.mark.parametrize(
    "fails",
    [
        Unavailable("down"),
        OutcomeUnknown("cut off"),
        RuntimeError("can't start new thread"),
        MemoryError(),
    ],
    ids=repr,
)
def test_it_is_over_by_its_own_clock_when_nobody_answers(
    serve: Callable[..., LeadershipLease], session: Session, clock: FakeClock, fails: Exception
) -> None:
    """Some ttl after the last heartbeat was *sent*, less what ending the attempts takes."""
    lease = serve()
    until(lambda: session.beats >= 2, "it beats")
    session.fails = fails
    _next_beat(session)
    sent = clock() - TTL / 5
    assert lease.valid_until == sent + SAFE * TTL
    clock.now = lease.valid_until - 0.001
    _next_beat(session)
    assert not lease.lost.is_set()

    clock.now = lease.valid_until
    assert lease.lost.wait(BOUND)


def test_it_continues_after_a_heartbeat_for_which_no_thread_could_be_started(
    serve: Callable[..., LeadershipLease], session: Session
) -> None:
    lease = serve()
    session.fails = RuntimeError("can't start new thread")
    _next_beat(session)
    session.fails = None
    before = session.beats
    until(lambda: session.beats > before, "it beats again")
    assert not lease.lost.is_set()


def _next_beat(session: Session) -> None:
    """Wait until a heartbeat is sent that was not under way, and the one before it is settled."""
    wanted = session.asked + 2
    until(lambda: session.asked >= wanted, "it tries to beat")


def test_it_is_over_although_a_heartbeat_hangs(
    serve: Callable[..., LeadershipLease], session: Session, clock: FakeClock
) -> None:
    lease = serve()
    session.answers.clear()
    assert session.hangs.wait(BOUND)
    clock.now = lease.valid_until
    assert lease.lost.wait(BOUND)
    session.answers.set()


def test_it_counts_from_when_the_campaign_was_sent(
    serve: Callable[..., LeadershipLease], session: Session, clock: FakeClock
) -> None:
    """An answer that took longer than the ttl to arrive: over before it begins."""
    session.fails = Unavailable("down")
    lease = serve(clock() - TTL)
    assert lease.lost.wait(BOUND)
    assert lease.valid_until <= clock()


def test_a_refused_heartbeat_ends_it_at_once(
    serve: Callable[..., LeadershipLease], session: Session, clock: FakeClock
) -> None:
    lease = serve()
    session.fails = Fenced("a newer epoch exists")
    assert lease.lost.wait(BOUND)
    assert clock() < lease.valid_until


def test_resigning_ends_the_session_once_and_its_guardian(
    serve: Callable[..., LeadershipLease], session: Session
) -> None:
    """Also if the session cannot be ended now: it ends by itself."""
    lease = serve()
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
    serve: Callable[..., LeadershipLease], session: Session, clock: FakeClock
) -> None:
    session.answers.clear()
    lease = serve()
    line = lease.lifeline
    assert isinstance(line, Lifeline)

    def moment() -> float:
        return float(struct.unpack("d", os.pread(line.until, 8, 0))[0])

    first = moment()
    assert first == lease.valid_until
    assert first == clock() + TTL * SAFE
    session.answers.set()
    until(lambda: moment() > first, "a heartbeat moves it")


def test_it_is_over_when_its_host_has_slept(
    serve: Callable[..., LeadershipLease], session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S8: the monotonic clock does not move meanwhile, and other clocks do."""
    session.answers.clear()
    monkeypatch.setattr(lease_module, "lease_time", lease_time)
    lease = serve(lease_time())
    now = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: now(clock) + 3600.0)

    assert lease.lost.wait(BOUND)
    session.answers.set()


@pytest.mark.parametrize("which", ["jrs-lease", "jrs-heartbeat"])
def test_a_leader_without_threads_leaves_nothing_behind(
    session: Session, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """A heartbeat that outlived its leadership would write into whatever has its descriptor."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(which):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = descriptors()
    with pytest.raises(Unavailable, match=r"can't start new thread: .*; this process cannot lead"):
        LeadershipLease(
            7, Fence(7, 70), ttl=TTL, sent=clock(), beat=session.beat, end=session.end, held=0
        )
    assert not [t for t in threading.enumerate() if t.name.endswith("-e7")]
    assert descriptors() <= before
    assert session.ended == 0


def test_an_unforeseen_error_of_a_heartbeat_is_no_end(
    serve: Callable[..., LeadershipLease],
    session: Session,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The thread sends the next heartbeat all the same, and the clock alone decides."""
    monkeypatch.setattr(session, "fails", TypeError("unforeseen"))
    lease = serve()
    _next_beat(session)
    assert "the heartbeat of epoch 7 failed: TypeError('unforeseen')" in caplog.messages
    assert not lease.lost.is_set()
    session.fails = None
    before = session.beats
    until(lambda: session.beats > before + 1, "it beats again")
    lease.resign()
