"""Plan: a commit as ZooKeeper's operations, and the meaning of their failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from jrs.contract.errors import Conflict, Fenced, JrsError, TooLarge
from jrs.contract.operations import EPOCH_KEY, Absent, Check, Create, Delete, Fence, Op, Update

from .layout import Layout, directory_of, shards_of
from .protocol import codec
from .protocol.request import refusal
from .versions import CachedVersion, VersionCache

LIMIT = 1_000_000
"""Most bytes of one request. At 1,048,575 ZooKeeper drops the connection, as in a failure."""

_FENCE, _GUARD, _NOTE = "fence", "guard", "note"


@attrs.define
class Plan:
    """The request for a commit.

    Attributes:
        operations: in the order in which ZooKeeper tries them.
        blame: for each operation, the part of the commit that fails with it.
        deletions: the shards whose deletions are counted, in order, and the keys deleted there.
        directories: the directories that must exist.
        unseen: keys that have to be read before the plan is valid.
        absent: keys that were read as absent, although the commit wants a version of them.
    """

    operations: list[bytes] = attrs.field(factory=list)
    blame: list[Op | str] = attrs.field(factory=list)
    deletions: dict[str, list[str]] = attrs.field(factory=dict)
    directories: list[str] = attrs.field(factory=list)
    unseen: list[str] = attrs.field(factory=list)
    absent: set[str] = attrs.field(factory=set)

    def add(self, operation: bytes, blame: Op | str) -> None:
        self.operations.append(operation)
        self.blame.append(blame)


@attrs.frozen
class Planner:
    """Makes plans for one cluster."""

    layout: Layout
    acl: bytes
    cache: VersionCache

    def plan(
        self,
        ops: Sequence[Op],
        fence: Fence | None,
        fresh: Mapping[str, CachedVersion | None] | None = None,
    ) -> Plan:
        """Plan a commit.

        Args:
            fresh: the versions that were read for this commit; None for an absent key.

        Raises:
            TooLarge: the commit is too large for one request.
        """
        plan = Plan()
        fresh = fresh or {}
        if fence is not None:
            known = self._look(fence.check(), fresh, plan)
        versioned = [op for op in ops if isinstance(op, (Update, Check, Delete))]
        versions = {op.key: self._look(op, fresh, plan) for op in versioned}
        if fence is not None:
            self._check_record(EPOCH_KEY, known, _FENCE, plan)
        self._guard(versioned, versions, plan)
        for op in ops:
            self._apply(op, versions, plan)
        self._take_note(ops, plan)
        size = sum(map(len, plan.operations))
        if size > LIMIT:
            raise TooLarge(f"a commit of {size:,} bytes; the limit is {LIMIT:,} for one commit")
        return plan

    def directory(self, name: str) -> list[bytes]:
        """Return the operations that create a directory and its shards in one write."""
        path = self.layout.directory(name)
        return [
            codec.create(path, b"", self.acl),
            *(codec.create(f"{path}/{shard}", b"", self.acl) for shard in shards_of(name)),
            codec.set_data(self.layout.map, b""),
        ]

    def look(self, keys: Sequence[str]) -> list[bytes]:
        """Return the reads for the keys: for each key its shard, then its record."""
        wanted = []
        for key in keys:
            wanted += [
                codec.get_data(self.layout.shard(key)),
                codec.get_data(self.layout.record(key)),
            ]
        return wanted

    def seen(self, key: str, shard: codec.Read, record: codec.Read) -> CachedVersion | None:
        """Record the two answers for one key in the version cache."""
        if not isinstance(record, codec.Node) or not isinstance(shard, codec.Node):
            return None
        return self.cache.record(key, record, self.layout.shard(key), shard.version)

    def outcome(self, plan: Plan, reply: tuple[bytes, int], where: str) -> JrsError | Replan | None:
        """Return the outcome from the answer: None (done), an error, or `Replan`.

        Args:
            where: the URL, for messages.
        """
        failed = codec.failure(*reply)
        if failed is None:
            if plan.deletions:
                updates = sum(isinstance(blame, Update) for blame in plan.blame)
                counted = codec.versions(*reply)[updates:]
                for (shard, keys), number in zip(plan.deletions.items(), counted, strict=False):
                    self.cache.deleted(keys, shard, number)
            return None
        index, code = failed
        blame = plan.blame[index]
        if code not in (codec.NO_NODE, codec.BAD_VERSION, codec.NODE_EXISTS):
            return refusal(code, where)
        key = EPOCH_KEY if blame == _FENCE else getattr(blame, "key", None)
        if code == codec.BAD_VERSION and key in plan.absent:
            return Replan()  # The member that was read is behind: the key is there.
        if blame == _FENCE:
            return _fenced()
        if isinstance(blame, str):
            return Replan()
        if isinstance(blame, (Create, Absent)):
            present = code == codec.NODE_EXISTS
            return Conflict(blame, "the key is present") if present else Replan(directories=True)
        absent = code == codec.NO_NODE
        return Conflict(blame, "the key is absent" if absent else "the key has another version")

    # -- inside ----------------------------------------------------------------------------

    def _look(
        self, op: Update | Check | Delete, fresh: Mapping[str, CachedVersion | None], plan: Plan
    ) -> CachedVersion | None:
        """Return what is known of the key at the version that `op` wants; None if nothing is.

        Versions only grow, so that a newer one shows that the condition fails. An older one, or
        that the key is absent, may also be what a member that is behind has answered: the servers
        decide, and if it is not so any more, the plan is made again.
        """
        if op.version is None:
            return None
        known = fresh[op.key] if op.key in fresh else self.cache.of(op.key)
        if known is not None and known.version >= op.version:
            return known if known.version == op.version else None
        if op.key not in fresh:
            plan.unseen.append(op.key)
        elif known is None:
            plan.absent.add(op.key)
        else:
            plan.add(codec.check(self.layout.shard(op.key), known.guard.deletions), _GUARD)
            plan.add(codec.check(self.layout.record(op.key), known.writes), _GUARD)
        return None

    def _guard(
        self,
        ops: Sequence[Update | Check | Delete],
        versions: dict[str, CachedVersion | None],
        plan: Plan,
    ) -> None:
        guards: dict[str, tuple[int, str]] = {}
        for op in ops:
            known = versions.get(op.key)
            if known is None:
                continue
            shard, deletions = self.layout.shard(op.key), known.guard.deletions
            other = guards.setdefault(shard, (deletions, op.key))
            if other[0] != deletions:
                plan.unseen += [other[1], op.key]  # Read at different moments.
        for shard, (deletions, _) in guards.items():
            plan.add(codec.check(shard, deletions), _GUARD)

    def _check_record(
        self, key: str, known: CachedVersion | None, blame: Op | str, plan: Plan
    ) -> None:
        if known is not None and blame == _FENCE:
            plan.add(codec.check(self.layout.shard(key), known.guard.deletions), blame)
        writes = codec.NEVER if known is None else known.writes
        plan.add(codec.check(self.layout.record(key), writes), blame)

    def _apply(self, op: Op, versions: dict[str, CachedVersion | None], plan: Plan) -> None:
        path = self.layout.record(op.key)
        if isinstance(op, Create):
            plan.add(codec.create(path, op.value, self.acl), op)
        elif isinstance(op, Absent):
            plan.add(codec.create(path, b"", self.acl), op)
            plan.add(codec.delete(path), op)
        elif isinstance(op, Check):
            self._check_record(op.key, versions[op.key], op, plan)
        else:
            known = versions.get(op.key)
            writes = codec.NEVER if known is None else known.writes
            if isinstance(op, Update):
                plan.add(codec.set_data(path, op.value, writes), op)
            else:
                plan.add(codec.delete(path, codec.ANY if op.version is None else writes), op)

    def _take_note(self, ops: Sequence[Op], plan: Plan) -> None:
        """Add the writes that count deletions and notify watchers."""
        changed: dict[str, None] = {}
        for op in ops:
            name = directory_of(op.key)
            if isinstance(op, (Create, Absent)) and name not in plan.directories:
                plan.directories.append(name)
            if isinstance(op, (Create, Update, Delete)):
                changed[name] = None
            if isinstance(op, Delete):
                plan.deletions.setdefault(self.layout.shard(op.key), []).append(op.key)
        for shard in plan.deletions:
            plan.add(codec.set_data(shard, b""), _NOTE)
        for name in changed:
            plan.add(codec.set_data(self.layout.directory(name), b""), _NOTE)


@attrs.frozen
class Replan:
    """Nothing was changed and no condition is known to fail: read again and send a new plan.

    Attributes:
        directories: a directory that was believed to exist is missing.
    """

    directories: bool = False


def _fenced() -> Fenced:
    return Fenced("a newer epoch exists: this leader has been replaced")
