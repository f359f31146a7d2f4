"""Warm standby: processes that are prepared for attempts before there are any.

Each process serves one attempt, and another one is prepared in its place a while after that: a host
that has just taken jobs over has better things to do.
"""

from __future__ import annotations

import enum
import os
import select
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.runtime import RUNTIME, Runtime, call_until, start_thread

from ..launch_socket import Kind
from ..warm_plan import WarmPlan
from ..watchdog import Word
from .watchdog_process import WatchdogProcess, by_exec

_LOOK = 30.0
"""Seconds between two looks at what is wanted; also from a claim to the next preparation."""
_TURN = 1.0
"""Seconds between two looks at what is due."""
_PATIENCE = 300.0
"""Seconds in which a process has to prepare itself."""
_LONGEST_BREAK = 3600.0
"""Seconds: the break after a process that could not prepare itself doubles up to this."""
_END = 30.0
"""Seconds in which the processes of a watchdog have to end."""


class _State(enum.Enum):
    PREPARING = enum.auto()
    READY = enum.auto()
    RESERVED = enum.auto()


@attrs.define(eq=False)
class _Warm:
    watchdog: WatchdogProcess
    plan: WarmPlan
    since: float
    state: _State = _State.PREPARING

    @property
    def is_reserved(self) -> bool:
        return self.state is _State.RESERVED


class WarmPool:
    """Keeps processes prepared while it is entered. Safe for use by many threads.

    Args:
        size: how many processes wait.
        program: the module that takes a plan and then a launch.
        wanted: returns the plan of each job that an attempt may be started of; may raise as a
            backend does.
        emit: reports what happens, in words.
    """

    def __init__(
        self,
        size: int,
        program: str,
        wanted: Callable[[], Sequence[WarmPlan]],
        emit: Callable[[str], None],
        runtime: Runtime = RUNTIME,
    ) -> None:
        self._size = size
        self._program = program
        self._wanted = wanted
        self._emit = emit
        self._runtime = runtime
        self._lock = threading.Lock()
        self._warm: dict[str, _Warm] = {}
        self._plans: list[WarmPlan] = []
        self._left = threading.Event()
        self._failures = 0
        self._not_before = self._look_at = runtime.clock()
        self._woken, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = runtime.thread(self._run, "jrs-warm")

    def __enter__(self) -> Self:
        start_thread(self._thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._wake()
        self._thread.join()
        for warm in self._withdraw(lambda warm: True):
            warm.watchdog.end(Deadline.after(_END))
        os.close(self._woken)
        os.close(self._waker)

    def reserve(self, plan: WarmPlan) -> str | None:
        """Reserve a process that waits for an attempt with this plan; return its mark, or None."""
        with self._lock:
            ready = [warm for warm in self._warm.values() if warm.state is _State.READY]
            fitting = sorted(
                (warm for warm in ready if _fits(warm.plan, plan)),
                key=lambda warm: warm.plan.conf != plan.conf,
            )
            if not fitting:
                return None
            fitting[0].state = _State.RESERVED
            self._not_before = max(self._not_before, self._runtime.clock() + _LOOK)
        self._wake()
        return fitting[0].watchdog.mark

    def take(self, mark: str) -> WatchdogProcess | None:
        """Return the process that was reserved with this mark, which then is the caller's."""
        with self._lock:
            warm = self._warm.pop(mark, None)
            return None if warm is None else warm.watchdog

    def release(self, mark: str) -> None:
        """End the process that was reserved with this mark, unless it was taken. Idempotent.

        It is not reserved again: its mark may have been recorded for the job.
        """
        watchdog = self.take(mark)
        if watchdog is not None:
            watchdog.end(Deadline.after(_END))

    # -- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        call_until(
            self._left.is_set,
            self._turn,
            pause=lambda: self._left.wait(_TURN),
            report=self._emit,
            failing="warm standby fails",
        )

    def _turn(self) -> None:
        self._look()
        self._end_hanging()
        self._prepare_next()
        self._wait()

    def _withdraw(self, which: Callable[[_Warm], bool]) -> list[_Warm]:
        """Remove processes, so that they cannot be reserved, and return them."""
        with self._lock:
            found = [warm for warm in self._warm.values() if which(warm)]
            for warm in found:
                del self._warm[warm.watchdog.mark]
        return found

    def _look(self) -> None:
        """Bring the plans up to date, and end the processes that are wanted no more: those of a
        plan beyond the number that it is wanted for, the newest first."""
        now = self._runtime.clock()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK
        try:
            plans = self._plans = chosen(self._wanted(), self._size)
        except (Unavailable, OutcomeUnknown):
            return  # What is prepared may still be of use.
        left = Counter(plans)

        def is_surplus(warm: _Warm) -> bool:
            if warm.is_reserved:
                return False
            left[warm.plan] -= 1
            return left[warm.plan] < 0

        for warm in self._withdraw(is_surplus):
            warm.watchdog.end(Deadline.after(_END))

    def _end_hanging(self) -> None:
        late = self._runtime.clock() - _PATIENCE
        for warm in self._withdraw(
            lambda warm: warm.state is _State.PREPARING and warm.since < late
        ):
            self._lose(warm, f"it has not prepared itself in {_PATIENCE:g} s")

    def _prepare_next(self) -> None:
        """Start one process, if one is missing and none is preparing itself."""
        now = self._runtime.clock()
        with self._lock:
            warm = [one for one in self._warm.values() if not one.is_reserved]
        missing = Counter(self._plans) - Counter(one.plan for one in warm)
        if not missing or now < self._not_before:
            return
        if any(one.state is _State.PREPARING for one in warm):
            return
        plan = next(iter(missing))
        try:
            watchdog = self._prepared(self._runtime.token(), plan)
        except OSError as error:
            self._break(f"no process can be prepared: {error.strerror}")
            return
        with self._lock:
            self._warm[watchdog.mark] = _Warm(watchdog, plan, now)

    def _prepared(self, mark: str, plan: WarmPlan) -> WatchdogProcess:
        watchdog = WatchdogProcess(mark, by_exec(self._program, mark))
        try:
            watchdog.send(Kind.PLAN, plan.to_line())
        except BaseException:
            watchdog.end(Deadline.after(_END))
            raise
        return watchdog

    def _wait(self) -> None:
        """Wait until a process has something to say, or for a moment."""
        with self._lock:
            waiting = {
                warm.watchdog.fileno(): warm for warm in self._warm.values() if not warm.is_reserved
            }
        look = select.poll()  # `select` takes no descriptor from 1024 on.
        for descriptor in (self._woken, *waiting):
            if descriptor >= 0:  # One that was taken meanwhile may be closed.
                look.register(descriptor, select.POLLIN)
        for descriptor, event in look.poll(_TURN * 1000):
            if descriptor == self._woken:
                os.read(self._woken, 512)
            elif not event & select.POLLNVAL:
                self._hear(waiting[descriptor])

    def _hear(self, warm: _Warm) -> None:
        with self._lock:
            if self._warm.get(warm.watchdog.mark) is not warm or warm.is_reserved:
                return  # It was reserved meanwhile: its attempt notices its end.
            if is_ready := warm.watchdog.hears_ready():
                warm.state = _State.READY
                self._failures = 0
            else:
                del self._warm[warm.watchdog.mark]
        if is_ready:
            seconds = self._runtime.clock() - warm.since
            self._emit(f"a process is prepared for the next attempt of a job ({seconds:.0f} s)")
        else:
            self._lose(warm, "it has ended")

    def _lose(self, warm: _Warm, why: str) -> None:
        word = warm.watchdog.end(Deadline.after(_END))
        self._break(f"a process that was prepared is lost: {why}{_last_line(word)}")

    def _break(self, why: str) -> None:
        self._failures += 1
        pause = min(_LOOK * 2.0 ** (self._failures - 1), _LONGEST_BREAK)
        self._not_before = self._runtime.clock() + pause
        self._emit(f"{why}; the next one is prepared in {pause:g} s")

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # It is awake, then.
            os.write(self._waker, b".")


def chosen(wanted: Sequence[WarmPlan], size: int) -> list[WarmPlan]:
    """Return the plans for `size` processes: each plan once, the most wanted ones first; then a
    second time, and so on."""
    counted = Counter(wanted).most_common()
    rounds = max((times for _, times in counted), default=0)
    found = [plan for turn in range(rounds) for plan, times in counted if times > turn]
    return found[:size]


def _fits(prepared: WarmPlan, wanted: WarmPlan) -> bool:
    """Return whether a session can become the wanted one: of what differs, Spark takes the settings
    of SQL while a session runs."""
    if (prepared.python, prepared.env) != (wanted.python, wanted.env):
        return False
    differing = {key for key, _ in prepared.conf.items() ^ wanted.conf.items()}
    return all(key.startswith("spark.sql.") for key in differing)


def _last_line(word: Word | None) -> str:
    said = "" if word is None else word.said.strip().rpartition("\n")[2]
    return f": {said}" if said else ""
