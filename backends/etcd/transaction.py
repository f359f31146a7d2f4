"""Transactions: a commit as etcd's compares and operations, many of them in one request.

Independent commits of many callers ride in one request as transactions within a transaction, each
with its own compares and its own outcome. All compares of a request are evaluated before anything
of it is written, so a commit that touches what an earlier one writes goes into a later request.
"""

from __future__ import annotations

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
"""Operations of a commit; a server takes 128 in a transaction, and as many compares."""

MAX_BYTES = 1_400_000
"""Bytes of a request; a server takes 1.5 MiB."""

_NESTED = 64
"""Commits in one request, and conditions of a commit that shares one."""

_OVERHEAD = 64
_MOST = 2**63 - 1
"""The greatest revision that there can be."""

_WRITES = (Create, Update, Delete)


@attrs.define(eq=False)
class Commit:
    """A commit, ready to be sent."""

    txn: Any
    ops: tuple[Op, ...]
    fence: Fence | None
    deadline: Deadline | None
    """Of its caller; None if nobody waits."""
    size: int
    reads: frozenset[str]
    writes: frozenset[str]
    left: bool = False
    """Its caller did not wait for the verdict, and may have read by now what came of it."""
    sent: bool = False
    """It may be carried out. One whose caller has left is not sent any more."""

    @property
    def may_share(self) -> bool:
        """Return whether it fits next to others: a transaction within one has half the room, its
        fence included."""
        return len(self.txn.compare) <= _NESTED

    def hurried(self, seconds: float) -> bool:
        """Return whether its caller waits for less than that."""
        return self.deadline is not None and self.deadline.remaining() < seconds

    def verdict(self, succeeded: bool, responses: Iterable[Any]) -> int:
        """Return what the answer to this commit says of it, in the terms of the group commit."""
        if succeeded:
            return ACCEPTED
        versions = [_version(one.response_range) for one in responses]
        if self.fence is not None and versions.pop() != self.fence.version:
            return FENCED
        for index, (op, version) in enumerate(zip(self.ops, versions, strict=True)):
            if not _holds(op, version):
                return index
        raise AssertionError("a transaction failed though each of its conditions holds")


def prepare(
    name: Callable[[str], bytes],
    ops: tuple[Op, ...],
    fence: Fence | None,
    deadline: Deadline | None = None,
) -> Commit:
    """Return a commit; `name` maps a key to the bytes of etcd's."""
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
        size=size,
        reads=frozenset(touched | {EPOCH_KEY} if fence is not None else touched),
        writes=written,
    )


def in_requests(commits: Iterable[Commit]) -> Iterator[list[Commit]]:
    """Yield the commits in order, together as far as they can share a request."""
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


def send(batch: list[Commit], condition: Any, write: Callable[[Any], Any]) -> list[int | Exception]:
    """Send commits in order, and return the verdict on each; `write` sends a request.

    Every request is subject to `condition`, besides those of its commits.

    None is sent after one that may still be carried out, or they would change places.
    """
    verdicts: list[int | Exception] = []
    waiting = deque(in_requests(batch))
    while waiting:
        together = waiting.popleft()
        try:
            verdicts += verdicts_of(together, write(request_of(together, condition)))
        except Refused as error:
            if len(together) == 1:
                verdicts.append(error)
                continue
            # Nothing of it was done. A server may have smaller limits than the usual ones, and
            # nobody's commit is refused for its neighbours.
            waiting.extendleft([one] for one in reversed(together))
        except JrsError as error:
            verdicts += [error] * len(together)
            left = sum(len(request) for request in waiting)
            why = f"not sent, for the commit before it failed: {error}"
            return verdicts + [Unavailable(why)] * left
    return verdicts


def request_of(commits: list[Commit], condition: Any) -> Any:
    """Return the request that carries commits which can share one."""
    if len(commits) == 1:
        # Not within another transaction: etcd does not look into those for who may write what.
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
        late = Unavailable("sent before an earlier outcome was settled; nothing was changed")
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
        # Zero would fit a key that is absent, and is nobody's version; more does not fit the wire.
        return compare(result=compare.EQUAL, target=compare.VERSION, key=key, version=-1)
    return compare(result=compare.EQUAL, target=compare.MOD, key=key, mod_revision=op.version)


def _version(answer: Any) -> int | None:
    return answer.kvs[0].mod_revision if answer.kvs else None


def _holds(op: Op, version: int | None) -> bool:
    if isinstance(op, (Create, Absent)):
        return version is None
    assert isinstance(op, (Update, Delete, Check))
    return version is not None and op.version in (None, version)
