"""Transactions: commits as etcd's compares and operations, many commits in one request.

Independent commits of many callers share one request as nested transactions, each with its own
compares and its own outcome. etcd evaluates all compares of a request before it writes anything, so
a commit that reads or writes a key of an earlier commit goes into a later request.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError, Refused, Unavailable
from jrs.contract.operations import EPOCH_KEY, Absent, Check, Create, Delete, Fence, Op, Update

from ..shared.group_commit import ACCEPTED, FENCED
from ._etcd3 import rpc

MAX_OPS = 120
"""Most operations of a commit; a server accepts 128 in a transaction, and 128 compares."""

MAX_BYTES = 1_400_000
"""Most bytes of a request; a server accepts 1.5 MiB."""

_NESTED = 64
"""Most commits in one request, and most conditions of a commit that shares a request."""

_OVERHEAD = 64
_MOST = 2**63 - 1
"""The largest possible revision."""

_WRITES = (Create, Update, Delete)


@attrs.define(eq=False)
class Commit:
    """A commit, ready to be sent."""

    txn: Any
    ops: tuple[Op, ...]
    fence: Fence | None
    deadline: Deadline
    """Until when its caller waits."""
    allowed: float | None
    """Seconds without an answer for which a commit waits that has no caller; see `until`."""
    size: int
    reads: frozenset[str]
    writes: frozenset[str]
    left: bool = False
    """Its caller stopped waiting for the verdict, and may have read back the outcome."""
    sent: bool = False
    """It may be carried out. A commit whose caller has left is not sent any more."""

    @property
    def may_share(self) -> bool:
        """Return whether it may share a request: a nested transaction may have only half as many
        conditions, including its fence."""
        return len(self.txn.compare) <= _NESTED

    def joins(self, first: Commit, write: float) -> bool:
        """Return whether it may be written together with `first`, whose deadline ends the write.

        Args:
            write: most seconds for a write.
        """
        # The outcome of a caller with much time must not be unknown because another one has little.
        # But callers who all have little time write together.
        left = first.time_left
        return left >= write or self.time_left <= 2 * left

    @property
    def time_left(self) -> float:
        """The seconds that its caller still waits."""
        return self.deadline.remaining() if self.allowed is None else math.inf

    def until(self, answered: float) -> Deadline:
        """Return how long it may take to send it. A long queue before it is no fault of the server:
        without a caller, its time begins again whenever other commits were answered.

        Args:
            answered: when that was last, on the deadline's clock.
        """
        if self.allowed is None:
            return self.deadline
        return attrs.evolve(self.deadline, at=max(self.deadline.at, answered + self.allowed))

    def verdict(self, succeeded: bool, responses: Iterable[Any]) -> int:
        """Return the verdict on this commit from its answer, in the terms of the group commit."""
        if succeeded:
            return ACCEPTED
        versions = [_version(one.response_range) for one in responses]
        if self.fence is not None and versions.pop() != self.fence.version:
            return FENCED
        for index, (op, version) in enumerate(zip(self.ops, versions, strict=True)):
            if not _holds(op, version):
                return index
        raise AssertionError("a transaction failed although all its conditions hold")


def prepare(
    name: Callable[[str], bytes],
    ops: tuple[Op, ...],
    fence: Fence | None,
    deadline: Deadline,
    *,
    allowed: float | None = None,
) -> Commit:
    """Return a commit that is ready to be sent; `name` maps a key to etcd's key."""
    compares, writes, looks = [], [], []
    size = 0
    for op in ops:
        key = name(op.key)
        size += 3 * len(key) + _OVERHEAD
        compares.append(_compare(op, key))
        looks.append(_look(key))
        if isinstance(op, (Create, Update)):
            size += len(op.value)
            put = rpc.PutRequest(key=key, value=op.value)
            writes.append(rpc.RequestOp(request_put=put))
        elif isinstance(op, Delete):
            gone = rpc.DeleteRangeRequest(key=key)
            writes.append(rpc.RequestOp(request_delete_range=gone))
    if fence is not None:
        check = fence.check()
        key = name(check.key)
        compares.append(_compare(check, key))
        looks.append(_look(key))
    touched = {op.key for op in ops}
    written = frozenset(op.key for op in ops if isinstance(op, _WRITES))
    return Commit(
        txn=rpc.TxnRequest(compare=compares, success=writes, failure=looks),
        ops=ops,
        fence=fence,
        deadline=deadline,
        allowed=allowed,
        size=size,
        reads=frozenset(touched | {EPOCH_KEY} if fence is not None else touched),
        writes=written,
    )


def in_requests(commits: Iterable[Commit]) -> Iterator[list[Commit]]:
    """Yield the commits in order, grouped by request."""
    together: list[Commit] = []
    size = 0
    reads: set[str] = set()
    writes: set[str] = set()
    for commit in commits:
        apart = (
            len(together) == _NESTED
            or size + commit.size > MAX_BYTES
            or not commit.may_share
            or (together and not together[0].may_share)
            or not writes.isdisjoint(commit.reads)
            or not reads.isdisjoint(commit.writes)
        )
        if apart and together:
            yield together
            together, size = [], 0
            reads.clear()
            writes.clear()
        together.append(commit)
        size += commit.size
        reads |= commit.reads
        writes |= commit.writes
    if together:
        yield together


def send(
    batch: list[Commit], condition: Any, write: Callable[[Any, Commit], Any]
) -> list[int | Exception]:
    """Send commits in order, and return the verdict on each; `write` sends a request, and is given
    the first of its commits.

    Every request has `condition` in addition to the conditions of its commits.

    After a request that may still be carried out, no other request is sent, because the order
    could change.
    """
    verdicts: list[int | Exception] = []
    waiting = deque(in_requests(batch))
    while waiting:
        together = waiting.popleft()
        try:
            verdicts += verdicts_of(together, write(request_of(together, condition), together[0]))
        except Refused as error:
            if len(together) == 1:
                verdicts.append(error)
                continue
            # Nothing was changed. A server may have smaller limits than usual, and no commit is
            # refused because of others in its request.
            waiting.extendleft([one] for one in reversed(together))
        except JrsError as error:
            verdicts += [error] * len(together)
            left = sum(len(request) for request in waiting)
            why = f"not sent, because the commit before it failed: {error}"
            return verdicts + [Unavailable(why)] * left
    return verdicts


def request_of(commits: list[Commit], condition: Any) -> Any:
    """Return the request for commits that can share one."""
    if len(commits) == 1:
        # Not nested: etcd does not check the permissions of nested transactions.
        own = commits[0].txn
        return rpc.TxnRequest(
            compare=[condition, *own.compare],
            success=own.success,
            failure=[*own.failure, _look(condition.key)],
        )
    each = [rpc.RequestOp(request_txn=one.txn) for one in commits]
    return rpc.TxnRequest(compare=[condition], success=each)


def verdicts_of(commits: list[Commit], answer: Any) -> list[int | Exception]:
    """Return the verdict on each commit of a request."""
    alone = len(commits) == 1
    if not answer.succeeded and (not alone or answer.responses[-1].response_range.kvs):
        late = Unavailable("sent before an earlier outcome was resolved; nothing was changed")
        return [late] * len(commits)
    if alone:
        return [commits[0].verdict(answer.succeeded, answer.responses[:-1])]
    pairs = zip(commits, answer.responses, strict=True)
    each = [(commit, one.response_txn) for commit, one in pairs]
    return [commit.verdict(one.succeeded, one.responses) for commit, one in each]


def _look(key: bytes) -> Any:
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key, keys_only=True))


def _compare(op: Op, key: bytes) -> Any:
    compare = rpc.Compare
    if isinstance(op, (Create, Absent)):
        return compare(result=compare.EQUAL, target=compare.CREATE, key=key, create_revision=0)
    if op.version is None:
        return compare(result=compare.GREATER, target=compare.CREATE, key=key, create_revision=0)
    if not 0 < op.version <= _MOST:
        # Zero would match an absent key, and a larger number does not fit the protocol.
        return compare(result=compare.EQUAL, target=compare.VERSION, key=key, version=-1)
    return compare(result=compare.EQUAL, target=compare.MOD, key=key, mod_revision=op.version)


def _version(answer: Any) -> int | None:
    return answer.kvs[0].mod_revision if answer.kvs else None


def _holds(op: Op, version: int | None) -> bool:
    if isinstance(op, (Create, Absent)):
        return version is None
    assert isinstance(op, (Update, Delete, Check))
    return version is not None and op.version in (None, version)
