"""Errors: what a caller can do with any of them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

import jrs
from jrs import Create, Failure, JobResult, JobStatus, JrsError

NAMES: list[str] = jrs.__all__
RESULT = JobResult("j", JobStatus.FAILED, failure=Failure("exception", "no"), payload={"a": [1]})
OF_THEIR_OWN: dict[type[JrsError], Callable[[], JrsError]] = {
    jrs.Conflict: lambda: jrs.Conflict(Create("key", b"value"), "it is there"),
    jrs.ResultExists: lambda: jrs.ResultExists("j", "dirty"),
    jrs.DuplicateJob: lambda: jrs.DuplicateJob("j", "clean"),
    jrs.DamagedSnapshot: lambda: jrs.DamagedSnapshot("snapshot 1", ("a is missing", "b")),
    jrs.NoSuchCluster: lambda: jrs.NoSuchCluster("no cluster", obstacle="no rights"),
    jrs.ClusterMoved: lambda: jrs.ClusterMoved("moved", "etcd://other"),
    jrs.JobNotFinished: lambda: jrs.JobNotFinished(RESULT),
}
"""How those are made that take other arguments than a text."""


KINDS = {
    name: public
    for name in NAMES
    if isinstance(public := getattr(jrs, name), type) and issubclass(public, JrsError)
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy],
                         ids=["pickled", "copied"])  # fmt: skip
def test_every_error_can_be_pickled_and_copied(
    name: str, again: Callable[[JrsError], JrsError]
) -> None:
    """Else a pool of processes hangs where a worker raises it: nothing tells who waits."""
    kind = KINDS[name]
    error = OF_THEIR_OWN.get(kind, lambda: kind("what happened"))()
    error.add_note("a note")
    other = again(error)
    assert type(other) is kind
    assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))
