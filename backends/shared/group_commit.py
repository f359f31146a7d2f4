"""Group commit: one thread of each handle writes the commits of all callers to the log.

The log is the backend's file or server. Callers put their commits into a queue and wait; the
serving thread takes all queued commits and writes them at once. Commits that arrive meanwhile form
the next batch.

A caller never writes by itself, for two reasons. It must not wait longer than its deadline, however
slow the disk is. And a signal handler, which runs in the main thread between any two instructions,
can raise there: then nothing is half done, because a caller only changes the queue, in one step.

Callers whose commits were written wake each other, one by one. If all woke at once, they would only
wait again, for the interpreter's lock.

The thread refers to its handle only while it serves it: a handle that its users drop without
`close` is garbage, and its thread ends.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    Conflict,
    Fenced,
    HandleClosed,
    JrsError,
    OutcomeUnknown,
    Unavailable,
)
from jrs.contract.operations import Op
from jrs.contract.pending_commit import PendingCommit
from jrs.contract.runtime import JrsThread, start_thread

T = TypeVar("T")
"""A commit in the form of the backend's log."""
R = TypeVar("R")

ACCEPTED = -1
"""The verdict on a commit whose conditions all held. Other verdicts are `FENCED` and the index of
the first failing operation."""
FENCED = -2

_MOST = 1024
"""Most commits in one write, which bounds the delay by one slow batch."""
_MOST_BYTES = 4 << 20
"""Most bytes of several commits in one write: a process that reads the log has a whole write in
memory, and each caller waits for all of it."""


class _Request(Generic[T]):
    """One commit on its way to the log, or an action with exclusive access to the log.

    Attributes:
        left: its caller does not wait any more.
        taken: the serving thread has taken it; until then it can be taken back.
        passes_on: its caller wakes the next caller, because no signal handler can interrupt it.
        following: the request whose caller it wakes.
    """

    __slots__ = (
        "action",
        "completed",
        "error",
        "following",
        "future",
        "left",
        "line",
        "ops",
        "passes_on",
        "taken",
        "wake",
    )

    def __init__(
        self,
        line: T | None,
        ops: tuple[Op, ...],
        *,
        future: PendingCommit | None = None,
        action: Callable[[], None] | None = None,
    ) -> None:
        self.line = line
        self.ops = ops
        self.future = future
        self.action = action
        self.error: BaseException | None = None
        self.left = self.taken = self.completed = False
        self.passes_on = threading.current_thread() is not threading.main_thread()
        self.following: _Request[T] | None = None
        self.wake = threading.Lock()
        self.wake.acquire()

    def complete(self, verdict: int | BaseException) -> None:
        if isinstance(verdict, BaseException):
            self.error = verdict
        elif verdict == FENCED:
            self.error = Fenced("a newer epoch exists: this leader has been replaced")
        elif verdict != ACCEPTED:
            self.error = Conflict(self.ops[verdict], "its condition does not hold in the log")
        self.completed = True


class GroupCommit(Generic[T]):
    """Batches the commits of all callers of one handle.

    Args:
        append: writes a batch of commits and returns their verdicts; called with `log` held.
        log: the lock under which the handle's log is read and written.
        size: returns how many bytes a commit has in the log; 0 where `append` divides batches.
        joins: returns whether a commit may share a write with the first one of its batch. If not,
            it begins the next batch.
        on_leaving: called with a commit that is being written when its caller stops waiting, before
            the caller can read the outcome. Returns whether the commit will certainly not be
            applied.

    Raises:
        Unavailable: no thread can be started.
    """

    def __init__(
        self,
        append: Callable[[list[T]], list[int | Exception]],
        log: threading.Lock,
        *,
        name: str,
        size: Callable[[T], int] = lambda _: 0,
        joins: Callable[[T, T], bool] = lambda _, first: True,
        on_leaving: Callable[[T], bool] = lambda _: False,
    ) -> None:
        self._append = append
        self._log = log
        self._size = size
        self._joins = joins
        self._on_leaving = on_leaving
        self._mutex = threading.Lock()
        self._queue: deque[_Request[T]] = deque()
        self._bell: SimpleQueue[GroupCommit[T] | None] = SimpleQueue()
        """Receives this for each request, which keeps it alive, and None to end the thread."""
        self._closed = False
        self._server = JrsThread(target=_serve, args=(self._bell,), name=name, daemon=True)
        start_thread(self._server)
        # At the end of the interpreter the thread ends with it.
        weakref.finalize(self, self._bell.put, None).atexit = False

    def commit(self, line: T, ops: tuple[Op, ...], deadline: Deadline) -> None:
        """Commit and wait for the verdict.

        Raises:
            Unavailable: the commit was not written by the deadline, and will not be.
            OutcomeUnknown: the commit was being written when the deadline passed.
        """
        self._await(_Request(line, ops), deadline)

    def commit_async(self, line: T, ops: tuple[Op, ...]) -> Future[None]:
        """Queue a commit; the serving thread completes its future."""
        future = PendingCommit()
        self._enter(_Request(line, ops, future=future))
        return future

    def run(self, action: Callable[[], R], deadline: Deadline) -> R:
        """Run `action` in the serving thread, between two batches, and return its result.

        Raises:
            Unavailable: the action has not ended by the deadline. If it has begun, it runs on.
        """
        result: list[R] = []
        self._await(_Request(None, (), action=lambda: result.append(action())), deadline)
        return result[0]

    def close(self, timeout: float) -> None:
        """Refuse new commits, finish the queued ones, and end the serving thread. Idempotent."""
        with self._mutex:
            self._closed = True
            self._bell.put(self)
            self._bell.put(None)
        if self._server is not threading.current_thread():
            self._server.join(timeout)

    # -- the callers' side -----------------------------------------------------------------

    def _enter(self, request: _Request[T]) -> None:
        # No code waits while it has this lock.
        with self._mutex:
            if self._closed:
                raise HandleClosed
            self._queue.append(request)
            self._bell.put(self)

    def _await(self, request: _Request[T], deadline: Deadline) -> None:
        try:
            self._enter(request)
            answered = request.wake.acquire(timeout=deadline.bounded())
        except BaseException:
            self._take_back(request)  # Closed, or interrupted by a signal handler.
            raise
        if not answered and self._take_back(request):
            raise Unavailable("the log was busy until the deadline; nothing was changed")
        if request.following is not None:
            request.following.wake.release()
        if request.error is not None:
            raise request.error
        if not request.completed:
            if request.line is None:
                raise Unavailable("no answer within the deadline")
            raise OutcomeUnknown("no answer within the deadline: the commit is being written")

    def _take_back(self, request: _Request[T]) -> bool:
        """Stop waiting; return whether the request will certainly not be carried out."""
        with self._mutex:
            if request.completed:
                return False
            request.left = True
            if not request.taken:
                return True
        return request.line is not None and self._on_leaving(request.line)

    # -- the serving thread ----------------------------------------------------------------

    def serve_queued(self) -> None:
        """Write what is queued. In the serving thread alone."""
        while self._queue:
            self._serve_once()

    def _serve_once(self) -> None:
        # Lock the log first: once a commit has left the queue its outcome is unknown, and a caller
        # that reads it back has to wait until it is written.
        with self._log:
            batch = self._take()
            if batch and batch[0].action is None:
                verdicts = self._written(batch)
        if not batch:
            return
        if (action := batch[0].action) is not None:
            verdicts = [_done(action)]
        self._complete(batch, verdicts)

    def _complete(self, batch: list[_Request[T]], verdicts: list[int | BaseException]) -> None:
        to_wake: list[_Request[T]] = []
        last: _Request[T] | None = None
        with self._mutex:
            for request, verdict in zip(batch, verdicts, strict=True):
                request.complete(verdict)
                if request.left or request.future is not None:
                    continue
                if last is not None and request.passes_on:
                    last.following = request
                else:
                    to_wake.append(request)
                last = request if request.passes_on else last
        for request in to_wake:
            request.wake.release()
        for request in batch:
            if request.future is not None:
                request.future.settle(request.error)

    def _take(self) -> list[_Request[T]]:
        """Take an action, or the commits up to the next one."""
        batch: list[_Request[T]] = []
        size = 0
        with self._mutex:
            while self._queue and len(batch) < _MOST:
                request = self._queue[0]
                if request.left:
                    self._queue.popleft()
                    continue
                size += self._size(request.line) if request.line is not None else 0
                if batch and not (size <= _MOST_BYTES and self._may_join(request, batch[0])):
                    break
                self._queue.popleft()
                request.taken = True
                batch.append(request)
                if request.action is not None:
                    break
        return batch

    def _may_join(self, request: _Request[T], first: _Request[T]) -> bool:
        if request.line is None or first.line is None:
            return False  # An action is alone.
        return self._joins(request.line, first.line)

    def _written(self, batch: list[_Request[T]]) -> list[int | BaseException]:
        try:
            return [*self._append([one.line for one in batch if one.line is not None])]
        except JrsError as error:
            return [error] * len(batch)
        except BaseException as error:
            return [OutcomeUnknown(repr(error))] * len(batch)


def _serve(bell: SimpleQueue[GroupCommit[T] | None]) -> None:
    while (group := bell.get()) is not None:
        group.serve_queued()
        del group


def _done(action: Callable[[], None]) -> int | BaseException:
    try:
        action()
    except BaseException as error:
        return error
    return ACCEPTED
