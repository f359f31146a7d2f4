"""Which commits of unknown outcome are known to have happened: a value that one of them alone was
to write was read. Then all of it has happened, before the end of that read.

Every check of the store and of jobs takes such a commit for one that was answered at that moment:
its answer may be lost just because of the fault under which it should have been refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from jrs.testing.chaos.recorded import Call, Kind, Verb

Value = tuple[str, Any]
"""A key, and the digest of what was written there."""


def known_of(calls: Iterable[Call]) -> dict[str, int]:
    """Return the commits of unknown outcome that are known to have happened, by their names, each
    with the first moment at which this is known, in nanoseconds."""
    calls = list(calls)
    lost = [
        (value, call.begun, call.name)
        for call in calls
        if call.f is Verb.COMMIT and call.type is Kind.INFO
        for value in _written(call)
    ]
    wanted = {value for value, _, _ in lost}
    digests = {digest for _, digest in wanted}
    writers: Counter[Value] = Counter()
    shown: dict[Value, int] = {}
    for call in calls if lost else ():
        if call.f is Verb.COMMIT:
            if call.type is not Kind.FAIL:
                writers.update(value for value in _written(call) if value in wanted)
        elif call.type is Kind.OK:
            for key, digest in _read(call):
                if digest in digests:
                    shown[key, digest] = min(call.ended, shown.get((key, digest), call.ended))
    found: dict[str, int] = {}
    for value, begun, name in lost:
        if writers[value] == 1 and value in shown:
            moment = max(begun, shown[value])  # A read before the write is wrong by itself.
            found[name] = min(moment, found.get(name, moment))
    return found


def settled(calls: Iterable[Call], known: Mapping[str, int]) -> Iterator[Call]:
    """Yield the operations; those that are known to have happened, as if they were answered when
    this was known."""
    for call in calls:
        if call.type is Kind.INFO and (moment := known.get(call.name)) is not None:
            yield attrs.evolve(call, type=Kind.OK, ended=moment)
        else:
            yield call


def _written(call: Call) -> Iterator[Value]:
    return ((part[1], part[2]) for part in call.value if part[0] in ("create", "update"))


def _read(call: Call) -> Iterable[Value]:
    if call.f is Verb.GET:
        return ((call.key, call.value),)
    if call.f is Verb.GET_MANY:
        return ((key, digest) for key, _, digest in call.value)
    return ((key, digest) for key, _, digest in call.value[2]) if call.f is Verb.SCAN else ()
