"""The contract as a dict: a hypothesis machine that compares a backend with it, step by step."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, Fenced, OutcomeUnknown
from jrs.contract.operations import EPOCH_KEY, Absent, Check, Create, Delete, Fence, Op, Update

Fresh = Callable[[], tuple[Callable[[str], Backend], str]]
"""Returns an opener of handles and the name of an unused cluster."""

KEYS = ("a", "a.b", "a/b", "a/b/c", "a/c", "b", "b/a")
_PREFIXES = ("", "a", "a/", "a/b", "b", "c", "leader/")
_KINDS = ("create", "update", "stale", "delete", "delete-at", "check", "absent")


@attrs.define
class Model:
    """What a backend must answer: values by key, with versions learned from it."""

    values: dict[str, tuple[bytes, int]] = attrs.field(factory=dict)
    retired: dict[str, int] = attrs.field(factory=dict)
    """The newest version that each key had and no longer has."""
    fences: list[Fence] = attrs.field(factory=list)

    def op(self, kind: str, key: str, value: bytes) -> Op:
        """Build an operation of that kind, with the version in the model, if any."""
        version = self.values[key][1] if key in self.values else self.retired.get(key, 1)
        if kind == "create":
            return Create(key, value)
        if kind == "update":
            return Update(key, value, version)
        if kind == "stale":
            return Update(key, value, self.retired.get(key, 10**12))
        if kind == "delete":
            return Delete(key)
        if kind == "delete-at":
            return Delete(key, version)
        if kind == "check":
            return Check(key, version)
        return Absent(key)

    def loser(self, ops: Sequence[Op]) -> Op | None:
        """Return the first operation whose condition does not hold."""
        for op in ops:
            found = self.values.get(op.key)
            if isinstance(op, (Create, Absent)):
                if found is not None:
                    return op
            elif found is None or (op.version is not None and op.version != found[1]):
                return op
        return None

    def written(self, ops: Sequence[Op]) -> dict[str, bytes | None]:
        """Return what the operations write; None for a key that they remove."""
        return {
            op.key: None if isinstance(op, Delete) else op.value
            for op in ops
            if isinstance(op, (Create, Update, Delete))
        }

    def apply(self, ops: Sequence[Op], versions: dict[str, int]) -> None:
        """Apply a commit, with the versions that the backend returned."""
        for key, value in self.written(ops).items():
            if key in self.values:
                self.retired[key] = self.values.pop(key)[1]
            if value is not None:
                assert versions[key] > self.retired.get(key, -1), f"{key}: version did not grow"
                self.values[key] = value, versions[key]


def histories() -> settings:
    """Return how many histories to try: few by default, 2,000 if JRS_SOAK is set."""
    examples = 2000 if os.environ.get("JRS_SOAK") else 60
    return settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def commits() -> st.SearchStrategy[list[tuple[str, str, bytes]]]:
    """Up to four operations on distinct keys, mostly ones that can succeed."""
    return st.lists(
        st.tuples(st.sampled_from(_KINDS), st.sampled_from(KEYS), st.binary(max_size=5)),
        max_size=4,
        unique_by=lambda op: op[1],
    )


class _Machine(RuleBasedStateMachine):
    """Two handles of one cluster, and the dict that says what they have to answer."""

    fresh: Fresh
    """Set by `check_against_model`: hypothesis makes the machine."""

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        self.opener, self.cluster = self.fresh()
        self.clients = [self.opener(self.cluster), self.opener(self.cluster)]
        self.model = Model()

    @rule(
        who=st.integers(0, 1),
        kinds=commits(),
        fence=st.sampled_from(("none", "none", "newest", "older")),
        pipelined=st.booleans(),
    )
    def commit(
        self, who: int, kinds: list[tuple[str, str, bytes]], fence: str, pipelined: bool
    ) -> None:
        model, client = self.model, self.clients[who]
        ops = [model.op(*kind) for kind in kinds]
        chosen = None
        if fence != "none" and model.fences:
            chosen = model.fences[-1] if fence == "newest" else model.fences[0]
        fenced = chosen is not None and chosen != model.fences[-1]
        loser = model.loser(ops)
        try:
            if pipelined:
                client.commit_async(*ops, fence=chosen).result(60)
            else:
                client.commit(*ops, fence=chosen)
        except Fenced:
            assert fenced
        except Conflict as conflict:
            refused = conflict.op
            assert not fenced
            assert loser == refused
        except OutcomeUnknown:
            self.check_either(ops, may_succeed=not fenced and loser is None)
            # It may still happen, so the next answers are unknown: continue with a new cluster.
            self.teardown()
            self.begin()
        else:
            assert not fenced
            assert loser is None
            versions = {record.key: record.version for record in client.scan("")}
            model.apply(ops, versions)

    def check_either(self, ops: Sequence[Op], *, may_succeed: bool) -> None:
        before = {key: value for key, (value, _) in self.model.values.items()}
        after = {**before, **self.model.written(ops)}
        after = {key: value for key, value in after.items() if value is not None}
        found = {r.key: r.value for r in self.clients[0].scan("") if r.key != EPOCH_KEY}
        assert found == before or (may_succeed and found == after)

    @rule(who=st.integers(0, 1), key=st.sampled_from(KEYS))
    def get(self, who: int, key: str) -> None:
        record = self.clients[who].get(key)
        found = None if record is None else (record.value, record.version)
        assert self.model.values.get(key) == found

    @rule(
        who=st.integers(0, 1),
        prefix=st.sampled_from(_PREFIXES),
        after=st.none() | st.sampled_from((*KEYS, "a/a", "bb")),
        limit=st.none() | st.integers(0, 4),
    )
    def scan(self, who: int, prefix: str, after: str | None, limit: int | None) -> None:
        expected = [
            (key, *self.model.values[key])
            for key in sorted(self.model.values)
            if key.startswith(prefix) and (after is None or key > after)
        ]
        records = self.clients[who].scan(prefix, after=after, limit=None)
        found = [(r.key, r.value, r.version) for r in records if r.key != EPOCH_KEY]
        assert expected == found
        if prefix not in ("", "leader/"):
            some = self.clients[who].scan(prefix, after=after, limit=limit)
            assert expected[:limit] == [(r.key, r.value, r.version) for r in some]

    @precondition(lambda self: len(self.model.fences) < 4)
    @rule(who=st.integers(0, 1))
    def lead(self, who: int) -> None:
        client = self.clients[who]
        ttl = client.capabilities.max_ttl
        won = client.campaign(f"c{who}", ttl=ttl, stop=threading.Event())
        assert won is not None
        assert all(won.epoch > fence.epoch for fence in self.model.fences)
        self.model.fences.append(won.fence)
        won.resign()

    @rule(who=st.integers(0, 1))
    def reopen(self, who: int) -> None:
        # The other handle stays open, so that a backend in this process keeps its state.
        self.clients[who].close()
        self.clients[who] = self.opener(self.cluster)

    @rule(who=st.integers(0, 1))
    def compact(self, who: int) -> None:
        compact = getattr(self.clients[who], "compact", None)
        if compact is not None:
            compact()

    @invariant()
    def both_clients_agree(self) -> None:
        expected = [(key, *self.model.values[key]) for key in sorted(self.model.values)]
        for client in self.clients:
            found = [(r.key, r.value, r.version) for r in client.scan("") if r.key != EPOCH_KEY]
            assert expected == found

    def teardown(self) -> None:
        for client in self.clients:
            client.close()


def check_against_model(fresh: Fresh, how: settings | None = None) -> None:
    """Run random histories on fresh clusters; raise at the first answer that differs from a
    dict's."""
    machine = type("Machine", (_Machine,), {"fresh": staticmethod(fresh)})
    run(machine, settings=how or histories())
