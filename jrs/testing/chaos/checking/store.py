"""The checks of the store: one linearizable map, whose writes are fenced."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import pairwise

from jrs.contract.operations import EPOCH_KEY
from jrs.testing.chaos.checking.cycles import cycles
from jrs.testing.chaos.checking.registers import Finding, What, contradictions
from jrs.testing.chaos.checking.verdict import Run, check
from jrs.testing.chaos.recorded import FOREVER, Call, Kind, Verb


@check
def linearizable(run: Run) -> Iterator[Finding]:
    """Every read shows the newest commit before it, and every condition was true when it held."""
    for key, facts in run.facts.items():
        yield from contradictions(key, facts)


@check
def serializable(run: Run) -> Iterator[Finding]:
    """All commits and pages fit one order, the order of time included, over all keys together."""
    yield from cycles(run.calls, run.facts)


@check
def fenced(run: Run) -> Iterator[Finding]:
    """No write of a replaced leader is accepted behind the first moment of its successor."""
    led = sorted(
        (call.epoch, call.version, call)
        for call in run.calls
        if call.f is Verb.CAMPAIGN and call.type is Kind.OK and call.epoch is not None
    )
    versions = _versions_written(run)
    for call in run.calls:
        if call.f is not Verb.COMMIT or call.type is not Kind.OK or call.epoch is None:
            continue
        for epoch, version, successor in led:
            if epoch <= call.epoch or version is None:
                continue
            written = versions.get(call.name)
            later = written is not None and written > version
            if later or call.begun > successor.ended:
                yield (
                    f"a commit of epoch {call.epoch} was accepted when epoch {epoch} had begun",
                    (successor.name, call.name),
                )
                break
    for (epoch, _, one), (later_epoch, _, other) in pairwise(led):
        if epoch == later_epoch:
            yield f"epoch {epoch} was led twice", (one.name, other.name)


def _versions_written(run: Run) -> dict[str, int]:
    """Return the version that a commit has written, where a read shows it beyond doubt."""
    found: dict[str, int] = {}
    for key, facts in run.facts.items():
        if key == EPOCH_KEY:
            continue
        writers: dict[str, list[str]] = {}
        for fact in facts:
            if fact.what is What.WRITE and fact.digest is not None:
                writers.setdefault(fact.digest, []).append(fact.name)
        versions: dict[str, set[int]] = {}
        for fact in facts:
            if fact.what is What.READ and fact.state is not None and fact.digest is not None:
                versions.setdefault(fact.digest, set()).add(fact.state)
        for digest, seen in versions.items():
            names = writers.get(digest, [])
            if len(names) == 1 and len(seen) == 1:
                found[names[0]] = min(seen)
    return found


@check
def outcomes(run: Run) -> Iterator[Finding]:
    """A commit of unknown outcome happened as a whole or not at all."""
    unknown = {
        call.name: call
        for call in run.calls
        if call.f is Verb.COMMIT and call.type is Kind.INFO and len(_written(call.value)) > 1
    }
    seen: dict[str, set[str]] = {}
    """The keys with which a commit was seen."""
    denied: dict[str, set[str]] = {}
    """The keys that show that it did not happen: what it required was replaced by another one."""
    for key, facts in run.facts.items():
        shown = {fact.digest for fact in facts if fact.what is What.READ and fact.digest}
        replaced = {
            fact.state for fact in facts
            if fact.what is What.WRITE and fact.sure and fact.state is not None
        }  # fmt: skip
        writers: dict[str | None, int] = {}
        for fact in facts:
            if fact.what is What.WRITE:
                writers[fact.digest] = writers.get(fact.digest, 0) + 1
        for fact in facts:
            if fact.what is not What.WRITE or fact.name not in unknown:
                continue
            if fact.digest in shown and writers[fact.digest] == 1:
                seen.setdefault(fact.name, set()).add(key)
            elif fact.state in replaced:
                denied.setdefault(fact.name, set()).add(key)
    for name in sorted(seen.keys() & denied.keys()):
        yield (
            f"a commit of unknown outcome has written {min(seen[name])}, and not "
            f"{min(denied[name])}",
            (name,),
        )


def _written(parts: list[list[object]]) -> list[object]:
    return [part[1] for part in parts if part[0] in ("create", "update", "delete")]


_DUE = 15_000_000_000
"""Nanoseconds in which a watch has to report a change, if its process lives."""


@check
def watched(run: Run) -> Iterator[Finding]:
    """Every change of a watched key is reported to every watch that is asked often enough."""
    commits = [call for call in run.calls if call.f is Verb.COMMIT and call.type is Kind.OK]
    commits.sort(key=lambda call: call.ended)
    for prefix, opened, notices in _watches(run):
        last = notices[-1][0] if notices else opened
        for call in commits:
            if call.begun < opened or call.ended + _DUE > last or call.ended == FOREVER:
                continue
            for key in _written(call.value):
                if str(key).startswith(prefix) and not _reported(str(key), call, notices):
                    yield f"a watch of {prefix} never reported the change of {key}", (call.name,)


def _watches(run: Run) -> Iterator[tuple[str, int, list[tuple[int, list[str] | None]]]]:
    """Yield each watch: its prefix, when it was opened, and when it reported what."""
    found: dict[tuple[str, int], tuple[str, int, list[tuple[int, list[str] | None]]]] = {}
    for event in run.events:
        watch = event.process, event.seq
        if event.f is Verb.WATCH:
            found[watch] = event.key, event.t, []
        elif event.f is Verb.NOTICE and watch in found:
            found[watch][2].append((event.t, event.value))
    yield from found.values()


def _reported(key: str, call: Call, notices: list[tuple[int, list[str] | None]]) -> bool:
    return any(
        at >= call.begun and (names is None or any(map(functools.partial(_covers, key), names)))
        for at, names in notices
    )


def _covers(key: str, name: str) -> bool:
    """Return whether a watch that reports this name reports the key, too."""
    return key == name or (name.endswith("/") and key.startswith(name))
