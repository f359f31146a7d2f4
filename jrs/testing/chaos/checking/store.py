"""The checks of the store: one linearizable map, whose writes are fenced."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from itertools import accumulate, pairwise

from jrs.testing.chaos.checking.cycles import cycles
from jrs.testing.chaos.checking.facts import ANY, Anomaly, Fact, What
from jrs.testing.chaos.checking.stale_reads import contradictions, made_by
from jrs.testing.chaos.checking.verdict import Run, check
from jrs.testing.chaos.recorded import FOREVER, Call, Kind, Verb


@check
def linearizable(run: Run) -> Iterator[Anomaly]:
    """Every read shows the newest commit before it, and every condition was true when it held."""
    for key, facts in run.facts.items():
        yield from contradictions(key, facts)


@check
def serializable(run: Run) -> Iterator[Anomaly]:
    """All commits and pages fit one order, the order of time included, over all keys together."""
    yield from cycles(run.facts)


@check
def fenced(run: Run) -> Iterator[Anomaly]:
    """No write of a replaced leader is accepted behind the first moment of its successor."""
    leads = Leads(call for call in run.calls if call.f is Verb.CAMPAIGN)
    late = (pair for facts in run.facts.values() for pair in leads.late(facts))
    yield from leads.broken_by(late)


class Leads:
    """The leaderships of a history, as far as they are known."""

    def __init__(self, campaigns: Iterable[Call]) -> None:
        led = [
            (call.epoch, call.version, call.ended, call.name)
            for call in campaigns
            if call.type is Kind.OK and call.epoch is not None and call.version is not None
        ]
        self._led = sorted(led)
        self._epochs = [epoch for epoch, _, _, _ in self._led]
        # Of this leadership and those behind it, the least version and the first end.
        self._versions = list(accumulate((one[1] for one in reversed(self._led)), min))[::-1]
        self._ends = list(accumulate((one[2] for one in reversed(self._led)), min))[::-1]

    def columns(self) -> tuple[list[int], list[int], list[int]]:
        """Return the epochs; and of each and those behind it, the least version and first end."""
        return self._epochs, self._versions, self._ends

    def late(self, facts: list[Fact]) -> Iterator[tuple[str, int, int]]:
        """Yield the writes of a key that came behind a later leadership: the name of each, the
        number of that leadership, and the epoch of its own."""
        made: dict[str, int] | None = None
        for fact in facts:
            if fact.epoch is None or not fact.sure or fact.what is not What.WRITE:
                continue
            later = bisect_right(self._epochs, fact.epoch)
            if later == len(self._led):
                continue
            if made is None:
                made = {write.name: version for write, version in made_by(facts)}
            version = made.get(fact.name, -1)
            if version <= self._versions[later] and fact.begun <= self._ends[later]:
                continue
            number = next(
                number
                for number, (_, least, ended, _) in enumerate(self._led[later:], later)
                if version > least or fact.begun > ended
            )
            yield fact.name, number, fact.epoch

    def broken_by(self, late: Iterable[tuple[str, int, int]]) -> Iterator[Anomaly]:
        """Yield what is wrong, given all that came too late."""
        first: dict[str, tuple[int, int]] = {}
        for name, number, own in late:
            first[name] = min((number, own), first.get(name, (number, own)))
        for name, (number, own) in sorted(first.items()):
            epoch, _, _, successor = self._led[number]
            yield (
                f"a commit of epoch {own} was accepted when epoch {epoch} had begun",
                (successor, name),
            )
        for (epoch, _, _, one), (later_epoch, _, _, other) in pairwise(self._led):
            if epoch == later_epoch:
                yield f"epoch {epoch} was led twice", (one, other)


@check
def outcomes(run: Run) -> Iterator[Anomaly]:
    """A commit of unknown outcome happened as a whole or not at all."""
    told = (
        (*one, key) for key, facts in run.facts.items() for one in outcomes_of(facts, run.known)
    )
    yield from halves(told)


def outcomes_of(facts: list[Fact], known: Container[str]) -> Iterator[tuple[str, bool]]:
    """Yield what a key tells of the commits of unknown outcome that are known to have happened:
    True if it shows what one wrote; False if another commit replaced what it required, or if that
    was still there when it was known. Behind the first delete, that a key is absent says nothing.
    """
    writes = [fact for fact in facts if fact.what is What.WRITE]
    unanswered = [write for write in writes if write.name in known]
    if not unanswered:
        return
    shown = {write.name for write, _ in made_by(facts)}
    replacing: dict[int | None, set[str]] = defaultdict(set)
    for write in writes:
        if write.sure:
            replacing[write.state].add(write.name)
    deleted = min((write.begun for write in writes if write.digest is None), default=FOREVER)
    last: dict[int | None, int] = {}
    for fact in facts:
        shows = fact.what is What.READ or fact.what is What.CHECK
        if shows and (fact.state is not None or fact.ended < deleted):
            last[fact.state] = max(fact.begun, last.get(fact.state, 0))
    for fact in unanswered:
        if fact.name in shown:
            yield fact.name, True
        elif fact.state == ANY:
            continue
        elif (fact.state is not None and replacing[fact.state] - {fact.name}) or (
            last.get(fact.state, 0) > fact.ended
        ):
            yield fact.name, False


def halves(told: Iterable[tuple[str, bool, str]]) -> Iterator[Anomaly]:
    """Yield the commits that one key shows, and another one denies."""
    keys: dict[bool, dict[str, set[str]]] = {True: {}, False: {}}
    for name, shown, key in told:
        keys[shown].setdefault(name, set()).add(key)
    seen, denied = keys[True], keys[False]
    for name in sorted(seen.keys() & denied.keys()):
        yield (
            f"a commit of unknown outcome has written {min(seen[name])}, and not "
            f"{min(denied[name])}",
            (name,),
        )
