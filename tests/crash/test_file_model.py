"""The file backend against a dict, through several processes, kill -9, torn tails, compactions.

The workers are real processes that live as long as the test; each example is a fresh cluster of
one store. A worker that an example kills is replaced.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from jrs.backends.file.format import batches, lines
from jrs.contract.errors import Conflict, Fenced
from jrs.contract.operations import EPOCH_KEY, Create, Fence
from jrs.testing.model import KEYS, Model, commits
from jrs.testing.worker import Died, Nursery, Worker, packed, packed_fence

PROCESSES = 3


@attrs.define
class Crew:
    """Workers that serve one example after the other."""

    root: Path
    workers: list[Worker] = attrs.field(factory=list)
    numbers: Iterator[int] = attrs.field(factory=itertools.count)
    nursery: Nursery = attrs.field(factory=Nursery)
    kills: int = 0

    def muster(self, cluster: str) -> None:
        """Have every worker on the cluster, new ones where one was killed."""
        while len(self.workers) < PROCESSES:
            self.workers.append(self.nursery.worker(self.root.as_uri(), cluster))
        for worker in self.workers:
            worker.open(self.root.as_uri(), cluster)

    def replace(self, who: int, cluster: str) -> None:
        """Kill -9 a worker and put another one in its place."""
        self.workers[who].kill()
        self.workers[who] = self.nursery.worker(self.root.as_uri(), cluster)
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
            self.cluster = f"c{next(crew.numbers)}"
            self.model = Model()
            crew.muster(self.cluster)

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
                found = {record.key: record.version for record in worker.scan("")}
                model.apply(ops, found)
            self.check(who)

        @rule(who=who, kinds=commits())
        def commit_and_kill(self, who: int, kinds: list[tuple[str, str, bytes]]) -> None:
            """A commit that is killed at any moment happened as a whole or not at all."""
            model, worker = self.model, crew.workers[who]
            ops = tuple(model.op(*kind) for kind in kinds)
            worker.send("commit", packed(ops), packed_fence(None))
            crew.replace(who, self.cluster)
            reader = (who + 1) % PROCESSES
            versions = {
                record.key: record for record in crew.workers[reader].scan("")
                if record.key != EPOCH_KEY
            }  # fmt: skip
            now = {key: (record.value, record.version) for key, record in versions.items()}
            if now != model.values:
                assert model.loser(ops) is None, "a commit that loses has changed something"
                model.apply(ops, {key: record.version for key, record in versions.items()})
            self.check(reader)

        @rule(who=who, after=st.none() | st.sampled_from(KEYS))
        def read(self, who: int, after: str | None) -> None:
            """Any process reads what the model holds."""
            self.check(who)
            for key in KEYS[:3]:
                record = crew.workers[who].get(key)
                found = None if record is None else (record.value, record.version)
                assert self.model.values.get(key) == found

        @rule(who=who)
        def compact(self, who: int) -> None:
            """Compaction changes nothing that can be read."""
            crew.workers[who].call("compact")
            self.check(who)

        @rule(who=who)
        def compact_and_kill(self, who: int) -> None:
            """A compaction that is killed at any moment changes nothing either."""
            crew.workers[who].send("compact")
            crew.replace(who, self.cluster)
            self.check((who + 1) % PROCESSES)

        @rule(who=who)
        def kill(self, who: int) -> None:
            """A process that is killed while it does nothing takes nothing with it."""
            crew.replace(who, self.cluster)
            self.check(who)

        @precondition(lambda self: len(self.model.fences) < 4)
        @rule(who=who)
        def lead(self, who: int) -> None:
            """Each leadership has a greater epoch, and ends the fences before it."""
            fence: Fence = crew.workers[who].lead(f"c{who}", 3600.0)
            crew.workers[who].call("resign")
            assert all(fence.epoch > older.epoch for older in self.model.fences)
            self.model.fences.append(fence)

        @rule(share=st.floats(0.0, 0.99))
        def tear(self, share: float) -> None:
            """A batch cut short at the log's end, as crashes leave it, costs nothing."""
            body = lines.commit((Create("torn", b"value"),), None)[0]
            batch = batches.batch([body], self.log().stat().st_size, 0)
            with self.log().open("ab") as file:
                file.write(batch[: int(share * len(batch))])
            for who in range(PROCESSES):
                self.check(who)

        @rule(who=who, kinds=commits(), cut=st.integers(1, 60))
        def lose_the_tail(self, who: int, kinds: list[tuple[str, str, bytes]], cut: int) -> None:
            """A commit whose last bytes never reached the disk did not happen.

            The machine crashed: every process dies, then the log is cut inside of the last commit.
            """
            model = self.model
            log = self.log()
            before = log.stat().st_size
            ops = tuple(model.op(*kind) for kind in kinds)
            if model.loser(ops) is not None:
                return
            crew.workers[who].commit(*ops)
            if log != self.log():
                return
            for worker in crew.workers:
                worker.kill()
            size = log.stat().st_size
            os.truncate(log, max(before, size - cut))
            for each in range(PROCESSES):
                crew.replace(each, self.cluster)
            for each in range(PROCESSES):
                self.check(each)

        def log(self) -> Path:
            folder = crew.root / "clusters" / self.cluster / "log"
            return max(folder.glob("*.tail"))

        def check(self, who: int) -> None:
            expected = [(key, *self.model.values[key]) for key in sorted(self.model.values)]
            records = crew.workers[who].scan("")
            assert expected == [(r.key, r.value, r.version) for r in records if r.key != EPOCH_KEY]

        def teardown(self) -> None:
            for worker in range(PROCESSES):
                self.check(worker)

    return Machine


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path)
    yield crew
    crew.dismiss()


def histories(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def test_processes_agree_with_a_dict(crew: Crew) -> None:
    """Through processes, kills, torn tails and compactions every answer is a dict's."""
    run(machine(crew), settings=histories(60))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_processes_agree_with_a_dict_for_long(crew: Crew) -> None:
    """The same, 2,000 histories of it."""
    run(machine(crew), settings=histories(2000))
    assert crew.kills > 2000


def test_a_killed_worker_is_told_apart(crew: Crew) -> None:
    """The kit itself: what a killed worker was asked is never taken for answered."""
    crew.muster("kit")
    worker = crew.workers[0]
    worker.kill()
    with pytest.raises(Died):
        worker.call("get", "k")
