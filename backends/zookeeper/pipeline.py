"""Pipeline: sends the commits of one handle in the order in which they were made.

Each commit is one request, sent at once behind the earlier ones. Only if the version cache lacks a
version does the commit have to read first; later commits then wait behind it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError, Unavailable
from jrs.contract.operations import Fence, Op
from jrs.contract.pending_commit import PendingCommit

from .cluster import removed
from .plan import Plan, Planner, Replan
from .protocol import codec
from .protocol.connection import Connection
from .protocol.multi_read import Reading
from .protocol.request import Request, refusal
from .versions import CachedVersion

_Finished = list[tuple["Commit", JrsError | None]]


class Commit:
    """One commit on its way. A caller that waits has a lock, a caller that does not a future."""

    def __init__(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        self.ops = ops
        self.fence = fence
        self.deadline = deadline
        self.fresh: dict[str, CachedVersion | None] | None = None
        self.stale = False
        self.plan: Plan | None = None
        self.obstacle: JrsError | None = None
        """Why a directory that it needs could not be created."""
        self.request: Request | None = None
        self.looking: Reading | None = None
        self.error: JrsError | None = None
        self.completed = False
        self.future: PendingCommit | None = None
        self.wake: threading.Lock | None = None

    def versioned(self) -> list[str]:
        """Return the keys with a required version."""
        return [op.key for op in self.ops if getattr(op, "version", None) is not None]

    def deliver(self, error: JrsError | None) -> None:
        """Report the outcome to the caller. Called once, without a lock."""
        self.error = error
        if self.wake is not None:
            self.wake.release()
        elif self.future is not None:
            self.future.settle(error)


class Pipeline:
    """The commits of one handle.

    Args:
        directories: the names of the known directories; extended here.
    """

    def __init__(self, connection: Connection, planner: Planner, directories: set[str]) -> None:
        self._connection = connection
        self._planner = planner
        self._directories = directories
        self._turn = threading.Lock()
        self._held: deque[Commit] = deque()
        self._newest: Commit | None = None
        self._incomplete: deque[Commit] = deque()
        """The commits of `commit_async`, in the order of their deadlines."""

    def commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        """Commit and wait for the outcome."""
        if deadline.expired:
            raise Unavailable("the deadline has already passed; nothing was changed")
        commit = Commit(ops, fence, deadline)
        commit.wake = threading.Lock()
        commit.wake.acquire()
        try:
            self._begin(commit)
            answered = commit.wake.acquire(timeout=deadline.bounded())
        except BaseException:
            self._give_up(commit)  # A signal handler interrupted it, or the handle is closed.
            raise
        if not answered:
            self._give_up(commit)
            commit.wake.acquire()  # The thread that completed the commit releases it.
        if commit.error is not None:
            raise commit.error

    def commit_async(
        self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline
    ) -> Future[None]:
        """Commit without waiting."""
        commit = Commit(ops, fence, deadline)
        commit.future = PendingCommit()
        with self._turn:
            self._incomplete.append(commit)
        self._begin(commit)
        return commit.future

    def expire(self) -> None:
        """Complete the commits of `commit_async` whose deadline has passed."""
        late = []
        with self._turn:
            while self._incomplete and (
                self._incomplete[0].completed or self._incomplete[0].deadline.expired
            ):
                commit = self._incomplete.popleft()
                if not commit.completed:
                    late.append(commit)
        for commit in late:
            self._give_up(commit)

    def close(self) -> None:
        """Complete the remaining commits, after the connection was closed."""
        with self._turn:
            rest, self._incomplete = [*self._incomplete, *self._held], deque()
        for commit in rest:
            self._give_up(commit)

    # -- inside ----------------------------------------------------------------------------

    def _begin(self, commit: Commit) -> None:
        self._locked(lambda finished: self._enter(commit, finished))

    def _locked(self, do: Callable[[_Finished], None]) -> None:
        """Run `do` under the lock, then report the commits that it has finished."""

        def step() -> None:
            finished: _Finished = []
            with self._turn:
                do(finished)
                for commit, _ in finished:
                    commit.completed = True
            for commit, error in finished:
                commit.deliver(error)

        self._connection.safe_calls.run(step)

    def _enter(self, commit: Commit, finished: _Finished) -> None:
        self._held.append(commit)
        self._advance(finished)

    def _advance(self, finished: _Finished) -> None:
        """Send commits, up to the first one that has to read versions."""
        while self._held:
            commit = self._held[0]
            if commit.completed:  # Its caller was interrupted before it came here.
                self._held.popleft()
                continue
            if commit.looking is not None:
                return
            try:
                plan = self._planner.plan(commit.ops, commit.fence, commit.fresh)
                unseen = plan.unseen + (commit.versioned() if commit.stale else [])
                if unseen:
                    self._look(commit, [*dict.fromkeys(unseen)])
                    return
                self._send(commit, plan, finished)
            except JrsError as error:
                finished.append((commit, error))
            self._held.popleft()

    def _look(self, commit: Commit, keys: list[str]) -> None:
        commit.stale = False
        commit.looking = Reading(
            self._connection,
            self._planner.look(keys),
            commit.deadline,
            lambda looking: self._locked(
                lambda finished: self._looked(commit, keys, looking, finished)
            ),
        )

    def _looked(
        self, commit: Commit, keys: list[str], looking: Reading, finished: _Finished
    ) -> None:
        commit.looking = None
        if not commit.completed:
            try:
                answers = looking.answers()
            except JrsError as error:
                finished.append((commit, error))
                self._held.remove(commit)
            else:
                parts = zip(keys, answers[::2], answers[1::2], strict=True)
                commit.fresh = {key: self._planner.seen(key, *parts_) for key, *parts_ in parts}
        self._advance(finished)

    def _send(self, commit: Commit, plan: Plan, finished: _Finished) -> None:
        if not plan.operations:
            finished.append((commit, None))
            return
        requests = [
            self._make_directory(name, commit)
            for name in plan.directories
            if name not in self._directories
        ]
        commit.plan = plan
        commit.request = Request(
            codec.MULTI,
            codec.multi(plan.operations),
            lambda request: self._locked(
                lambda finished: self._answered(commit, request, finished)
            ),
        )
        self._newest = commit
        self._connection.submit(*requests, commit.request)

    def _make_directory(self, name: str, commit: Commit) -> Request:
        def answered(request: Request) -> None:
            if request.reply is None:
                return
            failed = codec.failure(*request.reply)
            if failed is None or failed[1] == codec.NODE_EXISTS:
                self._directories.add(name)
            elif failed[1] == codec.NO_NODE:
                commit.obstacle = removed(self._planner.layout, self._connection.where)
            else:
                commit.obstacle = refusal(failed[1], self._connection.where)

        return Request(codec.MULTI, codec.multi(self._planner.directory(name)), answered)

    def _answered(self, commit: Commit, request: Request, finished: _Finished) -> None:
        if commit.completed or commit.request is not request:
            return
        problem = request.problem(self._connection.where)
        if problem is not None:
            finished.append((commit, problem))
            return
        assert request.reply is not None
        assert commit.plan is not None
        verdict = self._planner.outcome(commit.plan, request.reply, self._connection.where)
        if isinstance(verdict, Replan) and commit.obstacle is not None:
            finished.append((commit, commit.obstacle))
        elif isinstance(verdict, Replan):
            if verdict.directories:
                self._directories.difference_update(commit.plan.directories)
            self._again(commit, finished)
        else:
            finished.append((commit, verdict))

    def _again(self, commit: Commit, finished: _Finished) -> None:
        """Read again and send again, if that keeps the order of its caller's commits."""
        if commit.deadline.expired or (commit.wake is None and commit is not self._newest):
            finished.append((commit, Unavailable(
                f"{self._connection.where}: what was read for it is outdated, and later commits "
                "are already under way; nothing was changed"
            )))  # fmt: skip
            return
        commit.fresh, commit.stale = None, True
        self._held.appendleft(commit)
        self._advance(finished)

    def _give_up(self, commit: Commit) -> None:
        self._locked(lambda finished: self._abandon(commit, finished))

    def _abandon(self, commit: Commit, finished: _Finished) -> None:
        if commit.completed:
            return
        if commit.request is None or commit in self._held:
            if commit in self._held:
                self._held.remove(commit)
            if commit.looking is not None:
                commit.looking.cancel()
            where = self._connection.where
            error: JrsError = Unavailable(
                f"{where}: no answer within the deadline; nothing was changed"
            )
        else:
            assert commit.request is not None
            error = self._connection.overdue(commit.request)
        finished.append((commit, error))
        self._advance(finished)
