"""Group commit: whoever finds the log free writes for everybody who waits.

There is no writer thread between a caller and the disk: a lone caller writes and syncs by itself,
and pays one sync. While it does, others queue; the one at the head of the queue is then handed the
log and writes for all of them. A thread of its own serves only the futures of `commit_async`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError

from jrs.backend import Op
from jrs.backends.file.replica import ACCEPTED, FENCED
from jrs.clock import Deadline
from jrs.errors import Conflict, Fenced, JrsError, OutcomeUnknown, Unavailable

_MOST = 1024
"""Commits in one write: bounds what one slow batch holds up."""

Append = Callable[[list[bytes]], list[int | Exception]]


class _Request:
    """One commit on its way to the log."""

    __slots__ = ("error", "future", "leads", "line", "ops", "settled", "wake")

    def __init__(self, line: bytes, ops: tuple[Op, ...], future: Future[None] | None) -> None:
        self.line = line
        self.ops = ops
        self.future = future
        self.error: Exception | None = None
        self.settled = False
        self.leads = False
        self.wake: threading.Lock | None = None

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

    def deliver(self) -> None:
        """Tell whoever waits; called without any lock."""
        if self.future is not None:
            try:
                if self.error is not None:
                    self.future.set_exception(self.error)
                else:
                    self.future.set_result(None)
            except InvalidStateError:
                pass  # Its caller canceled it; the commit stands all the same.
        elif self.wake is not None:
            self.wake.release()


class GroupCommit:
    """Batches the commits of all callers of one handle.

    Args:
        append: writes a batch of lines, called with `log` held.
        log: the lock under which the handle's log is read and written.
    """

    def __init__(self, append: Append, log: threading.Lock, *, name: str) -> None:
        self._append = append
        self._log = log
        self._name = name
        self._mutex = threading.Lock()
        self._queue: deque[_Request] = deque()
        self._busy = False
        self._closed = False
        self._server: threading.Thread | None = None
        self._serve = threading.Semaphore(0)

    def commit(self, line: bytes, ops: tuple[Op, ...], deadline: Deadline) -> None:
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
            self._await_turn(request, deadline)
        if request.leads:
            self._write([request])
        if request.error is not None:
            raise request.error

    def commit_async(self, line: bytes, ops: tuple[Op, ...]) -> Future[None]:
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
        gate = _Request(b"", (), None)
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

    def _await_turn(self, request: _Request, deadline: Deadline) -> None:
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
                raise OutcomeUnknown(
                    "the disk did not answer within the deadline: the commit is being written"
                ) from None
        raise Unavailable("the log was busy until the deadline; nothing was changed")

    def _abandon(self, request: _Request) -> None:
        with self._mutex:
            leads = request.leads
            if not leads and request in self._queue:
                self._queue.remove(request)
        if leads:
            self._hand_over()

    def _write(self, batch: list[_Request]) -> None:
        """Write `batch` and whatever is queued; then hand the log on. The caller owns it."""
        try:
            # The log first: once a commit has left the queue its outcome is unknown, and whoever
            # reads it back has to wait for us.
            with self._log:
                with self._mutex:
                    while self._queue and len(batch) < _MOST:
                        if not self._queue[0].line:
                            break  # Somebody wants the log for itself: its turn comes next.
                        batch.append(self._queue.popleft())
                verdicts = self._append([request.line for request in batch])
        except BaseException as error:
            problem = error if isinstance(error, JrsError) else OutcomeUnknown(repr(error))
            verdicts = [problem] * len(batch)
            if not isinstance(error, Exception):
                self._settle(batch, verdicts)
                raise
        self._settle(batch, verdicts)

    def _settle(self, batch: list[_Request], verdicts: list[int | Exception]) -> None:
        for request, verdict in zip(batch, verdicts, strict=True):
            request.settle(verdict)
        self._hand_over()
        for request in batch:
            request.deliver()

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
