"""Group commit: whoever finds the log free writes for everybody who waits.

The log is what a backend appends to, a file or a server. There is no writer thread between a caller
and the log: a lone caller writes by itself. While it does, others queue; the one at the head of the
queue is then handed the log and writes for all of them. A thread of its own serves only the futures
of `commit_async`.

Those whose commits were written wake one another, one by one: woken all at once, they would only
wait again, for the interpreter's lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Generic, TypeVar

from jrs.backend import Op
from jrs.clock import Deadline
from jrs.errors import Conflict, Fenced, JrsError, OutcomeUnknown, Unavailable

T = TypeVar("T")
"""What a backend has made of a commit for its log."""

ACCEPTED = -1
"""The verdict on a commit whose every condition held; else the index of the first failing
operation, or `FENCED`."""
FENCED = -2

_MOST = 1024
"""Commits in one write: bounds what one slow batch holds up."""


class _Request(Generic[T]):
    """One commit on its way to the log."""

    __slots__ = (
        "abandoned",
        "error",
        "following",
        "future",
        "leads",
        "line",
        "ops",
        "settled",
        "wake",
    )

    def __init__(self, line: T | None, ops: tuple[Op, ...], future: Future[None] | None) -> None:
        self.line = line
        self.ops = ops
        self.future = future
        self.error: Exception | None = None
        self.settled = False
        self.leads = False
        self.abandoned = False
        self.wake: threading.Lock | None = None
        self.following: _Request[T] | None = None
        """Whoever is to be woken by this one's caller."""

    def settle(self, verdict: int | Exception) -> None:
        if verdict == ACCEPTED:
            pass
        elif isinstance(verdict, Exception):
            self.error = verdict
        elif verdict == FENCED:
            self.error = Fenced("a newer epoch exists: this leader has been replaced")
        else:
            self.error = Conflict(self.ops[verdict], "its condition does not hold in the log")
        self.settled = True

    def resolve(self, future: Future[None]) -> None:
        """Settle the future; called without any lock."""
        try:
            if self.error is not None:
                future.set_exception(self.error)
            else:
                future.set_result(None)
        except InvalidStateError:
            pass  # Its caller canceled it; the commit stands all the same.

    def wake_following(self) -> None:
        following, self.following = self.following, None
        if following is not None:
            assert following.wake is not None
            following.wake.release()


class GroupCommit(Generic[T]):
    """Batches the commits of all callers of one handle.

    Args:
        append: writes a batch of commits and returns their verdicts; called with `log` held.
        log: the lock under which the handle's log is read and written.
        hurried: whether a commit has to be written by itself, because its caller has too little
            time left to write for others as well.
        on_leaving: called with a commit when its caller goes without the verdict, while another one
            writes it: before it can read what came of it.
    """

    def __init__(
        self,
        append: Callable[[list[T]], list[int | Exception]],
        log: threading.Lock,
        *,
        name: str,
        hurried: Callable[[T], bool] = lambda _: False,
        on_leaving: Callable[[T], None] = lambda _: None,
    ) -> None:
        self._append = append
        self._log = log
        self._name = name
        self._hurried = hurried
        self._on_leaving = on_leaving
        self._mutex = threading.Lock()
        self._queue: deque[_Request[T]] = deque()
        self._busy = False
        self._closed = False
        self._server: threading.Thread | None = None
        self._serve = threading.Semaphore(0)

    def commit(self, line: T, ops: tuple[Op, ...], deadline: Deadline) -> None:
        """Commit and wait for the verdict."""
        request = _Request(line, ops, None)
        with self._mutex:
            self._check_open()
            if self._busy:
                request.wake = threading.Lock()
                request.wake.acquire()
                self._queue.append(request)
            else:
                self._busy = True
                request.leads = True
        if request.wake is not None:
            try:
                self._await_turn(request, deadline)
            finally:
                request.wake_following()
        if request.leads:
            self._write([request])
        if request.error is not None:
            raise request.error

    def commit_async(self, line: T, ops: tuple[Op, ...]) -> Future[None]:
        """Queue a commit; its future is settled by the serving thread or by another caller."""
        request = _Request(line, ops, Future())
        assert request.future is not None
        with self._mutex:
            self._check_open()
            if self._server is None:
                self._server = threading.Thread(
                    target=self._serve_futures, name=self._name, daemon=True
                )
                self._server.start()
            self._queue.append(request)
            if not self._busy:
                self._busy = True
                self._serve.release()
        return request.future

    def close(self, timeout: float) -> None:
        """Refuse new commits, finish what is queued, and end the serving thread."""
        with self._mutex:
            self._closed = True
            server = self._server
            if server is not None and not self._busy:
                self._busy = True
                self._serve.release()
        if server is not None and server is not threading.current_thread():
            server.join(timeout)

    def exclusively(self, action: Callable[[], None], deadline: Deadline) -> None:
        """Run `action` while no batch is written."""
        gate = _Request[T](None, (), None)
        with self._mutex:
            self._check_open()
            if not self._busy:
                self._busy = True
                gate.leads = True
            else:
                gate.wake = threading.Lock()
                gate.wake.acquire()
                self._queue.append(gate)
        if gate.wake is not None:
            self._await_turn(gate, deadline)
        try:
            action()
        finally:
            self._hand_over()

    # -- inside ----------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("this handle is closed")

    def _await_turn(self, request: _Request[T], deadline: Deadline) -> None:
        assert request.wake is not None
        try:
            if request.wake.acquire(timeout=deadline.bounded()):
                return
        except BaseException:
            # Interrupted (SIGINT): nobody may be handed the log by us any more.
            self._abandon(request)
            raise
        with self._mutex:
            if request.settled or request.leads:
                return
            try:
                self._queue.remove(request)
            except ValueError:
                request.abandoned = True
                self._leave(request)
                raise OutcomeUnknown(
                    "no answer within the deadline: the commit is being written"
                ) from None
        raise Unavailable("the log was busy until the deadline; nothing was changed")

    def _abandon(self, request: _Request[T]) -> None:
        with self._mutex:
            leads = request.leads
            request.abandoned = True
            if not leads and request in self._queue:
                self._queue.remove(request)
            elif not leads and not request.settled:
                self._leave(request)
        if leads:
            self._hand_over()

    def _leave(self, request: _Request[T]) -> None:
        if request.line is not None:
            self._on_leaving(request.line)

    def _write(self, batch: list[_Request[T]]) -> None:
        """Write `batch` and whatever is queued; then hand the log on. The caller owns it."""
        try:
            # The log first: once a commit has left the queue its outcome is unknown, and whoever
            # reads it back has to wait for us.
            with self._log:
                first = batch[0].line
                alone = first is not None and self._hurried(first)
                with self._mutex:
                    while self._queue and len(batch) < _MOST and not alone:
                        if self._queue[0].line is None:
                            break  # Somebody wants the log for itself: its turn comes next.
                        batch.append(self._queue.popleft())
                verdicts = self._append(
                    [request.line for request in batch if request.line is not None]
                )
        except BaseException as error:
            problem = error if isinstance(error, JrsError) else OutcomeUnknown(repr(error))
            verdicts = [problem] * len(batch)
            if not isinstance(error, Exception):
                self._settle(batch, verdicts)
                raise
        self._settle(batch, verdicts)

    def _settle(self, batch: list[_Request[T]], verdicts: list[int | Exception]) -> None:
        last = first = _Request[T](None, (), None)
        with self._mutex:
            for request, verdict in zip(batch, verdicts, strict=True):
                request.settle(verdict)
                if request.wake is not None and not request.leads and not request.abandoned:
                    last.following = request
                    last = request
        self._hand_over()
        for request in batch:
            if request.future is not None:
                request.resolve(request.future)
        first.wake_following()

    def _hand_over(self) -> None:
        with self._mutex:
            if not self._queue:
                self._busy = False
                if self._closed and self._server is not None:
                    self._serve.release()
                return
            head = self._queue[0]
            if head.future is not None:
                self._serve.release()
                return
            self._queue.popleft()
            head.leads = True
            assert head.wake is not None
            head.wake.release()

    def _serve_futures(self) -> None:
        while True:
            self._serve.acquire()
            with self._mutex:
                if self._closed and not self._queue:
                    self._busy = False
                    return
                first = self._queue.popleft()
            self._write([first])
