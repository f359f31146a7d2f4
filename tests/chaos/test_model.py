"""The map on a server against a dict: through several processes, and kill -9 of any of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from jrs.contract.errors import Conflict, Fenced
from jrs.contract.operations import EPOCH_KEY, Create, Fence
from jrs.testing.model import KEYS, Model, commits
from jrs.testing.servers import Server
from jrs.testing.worker import Nursery, Worker, packed, packed_fence

PROCESSES = 3
TTL = 10.0
IDS = "id/"


@attrs.define
class Crew:
    """Workers that serve one example after the other; each example is a cluster of its own."""

    url: str
    name: str
    workers: list[Worker] = attrs.field(factory=list)
    numbers: Iterator[int] = attrs.field(factory=itertools.count)
    nursery: Nursery = attrs.field(factory=Nursery)
    kills: int = 0

    def muster(self) -> str:
        """Have every worker on a fresh cluster; return its name."""
        cluster = f"{self.name}-{next(self.numbers)}"
        while len(self.workers) < PROCESSES:
            self.workers.append(self.nursery.worker(self.url, cluster))
        for worker in self.workers:
            worker.open(self.url, cluster)
        return cluster

    def replace(self, who: int, cluster: str) -> None:
        """Kill -9 a worker and put another one in its place."""
        self.workers[who].kill()
        self.workers[who] = self.nursery.worker(self.url, cluster)
        self.kills += 1

    def dismiss(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.nursery.close()


def machine(crew: Crew) -> type[RuleBasedStateMachine]:
    """Return the machine whose processes are `crew`."""

    who = st.integers(0, PROCESSES - 1)

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.cluster = crew.muster()

        @rule(who=who, kinds=commits(), fence=st.sampled_from(("none", "none", "newest", "older")))
        def commit(self, who: int, kinds: list[tuple[str, str, bytes]], fence: str) -> None:
            """Every answer is the one that the model gives."""
            model, worker = self.model, crew.workers[who]
            ops = tuple(model.op(*kind) for kind in kinds)
            chosen = None
            if fence != "none" and model.fences:
                chosen = model.fences[-1] if fence == "newest" else model.fences[0]
            fenced = chosen is not None and chosen != model.fences[-1]
            loser = model.loser(ops)
            refused = None
            try:
                worker.commit(*ops, fence=chosen)
            except Fenced:
                assert fenced
                return
            except Conflict as conflict:
                refused = conflict.op
            assert not fenced
            assert loser == refused
            if refused is None:
                model.apply(ops, {record.key: record.version for record in worker.scan("")})
            self.check((who + 1) % PROCESSES)

        @rule(who=who, kinds=commits())
        def commit_and_kill(self, who: int, kinds: list[tuple[str, str, bytes]]) -> None:
            """A commit that is killed at any moment happens as a whole or not at all.

            The server may still do it after the kill; to take its id decides.
            """
            model, worker = self.model, crew.workers[who]
            ops = tuple(model.op(*kind) for kind in kinds)
            once = Create(f"{IDS}{crew.kills}", b"")
            worker.send("commit", packed((*ops, once)), packed_fence(None))
            crew.replace(who, self.cluster)
            try:
                crew.workers[who].commit(once)
            except Conflict:
                assert model.loser(ops) is None, "a commit that loses has changed something"
                records = crew.workers[who].scan("")
                model.apply(ops, {record.key: record.version for record in records})
            self.check((who + 1) % PROCESSES)

        @rule(who=who)
        def lead_and_kill(self, who: int) -> None:
            """A leader that is killed is replaced long before its ttl is over."""
            worker, other = crew.workers[who], crew.workers[(who + 1) % PROCESSES]
            older = [fence.epoch for fence in self.model.fences]
            self.model.fences.append(worker.lead(f"c{who}", TTL))
            crew.replace(who, self.cluster)
            self.model.fences.append(other.lead("next", TTL))
            other.call("resign")
            epochs = [fence.epoch for fence in self.model.fences]
            assert epochs == sorted({*older, *epochs})

        @rule(who=who, after=st.sampled_from(KEYS))
        def read(self, who: int, after: str) -> None:
            """Any process reads what the model holds."""
            self.check(who)
            record = crew.workers[who].get(after)
            assert self.model.values.get(after) == (record and (record.value, record.version))

        @rule(who=who)
        def kill(self, who: int) -> None:
            """A process that is killed while it does nothing takes nothing with it."""
            crew.replace(who, self.cluster)
            self.check(who)

        @precondition(lambda self: len(self.model.fences) < 4)
        @rule(who=who)
        def lead(self, who: int) -> None:
            """Each leadership has a greater epoch, and ends the fences before it."""
            fence: Fence = crew.workers[who].lead(f"c{who}", TTL)
            crew.workers[who].call("resign")
            assert all(fence.epoch > older.epoch for older in self.model.fences)
            self.model.fences.append(fence)

        def check(self, who: int) -> None:
            expected = [(key, *self.model.values[key]) for key in sorted(self.model.values)]
            records = [
                (record.key, record.value, record.version)
                for record in crew.workers[who].scan("")
                if record.key != EPOCH_KEY and not record.key.startswith(IDS)
            ]
            assert expected == records

        def teardown(self) -> None:
            for worker in range(PROCESSES):
                self.check(worker)

    return Machine


@pytest.fixture
def crew(server: Server, cluster: str) -> Iterator[Crew]:
    crew = Crew(server.url(), cluster)
    yield crew
    crew.dismiss()


def histories(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def test_processes_agree_with_a_dict(crew: Crew) -> None:
    """Through processes and kills every answer is a dict's."""
    run(machine(crew), settings=histories(4))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_processes_agree_with_a_dict_for_long(crew: Crew) -> None:
    """The same, 500 histories of it."""
    run(machine(crew), settings=histories(500))
    assert crew.kills > 500
