"""Faults of commits whose answers are lost, to plant in histories that have none: a read shows that
they have happened, as `known` has it."""

from __future__ import annotations

from jrs.records import keys
from jrs.testing.chaos.checking.planted import Amid, Anomaly, found_by
from jrs.testing.chaos.recorded import Kind

LOST_ANSWERS: dict[str, Anomaly] = {}
"""All of these faults, by their names."""


@found_by("fenced", LOST_ANSWERS)
def older_epoch_unanswered(amid: Amid) -> None:
    """A commit of a leader takes effect behind the beginning of its successor; the answer is lost,
    and what it wrote is read."""
    epoch, _, began = max(amid.leads)
    amid.now = max(amid.now, began)
    amid.commit(["create", amid.key, "x"], answer=Kind.INFO, epoch=epoch - 1)
    amid.read(amid.next(), "x")


@found_by("fenced", LOST_ANSWERS)
def older_epoch_of_the_dead(amid: Amid) -> None:
    """Such a commit, whose process is killed; only one of two keys that it wrote is read."""
    epoch, _, began = max(amid.leads)
    amid.now = max(amid.now, began)
    parts = [["create", f"{amid.key}/{number}", "x"] for number in (1, 2)]
    amid.commit(*parts, answer=None, epoch=epoch - 1)
    amid.read(amid.next(), "x", parts[1][1])


@found_by("linearizable", LOST_ANSWERS)
def unanswered_condition(amid: Amid) -> None:
    """A commit without an answer has written one key, although another one was not as it had
    required when it began."""
    old = amid.next()
    amid.commit(["create", amid.key, "old"])
    amid.read(old, "old")
    amid.commit(["update", amid.key, "new", old])
    written = f"{amid.key}/other"
    amid.commit(["create", written, "x"], ["check", amid.key, old], answer=None)
    amid.read(amid.next(), "x", written)


@found_by("once_per_job", LOST_ANSWERS)
def attempt_behind_unanswered_result(amid: Amid) -> None:
    """An attempt begins when its job has ended: the answers of all commits of the result are lost,
    and it is read."""
    result = keys.RESULTS + amid.key
    for answer in (Kind.INFO, None):
        amid.commit(["create", result, "x"], answer=answer)
    amid.read(amid.next(), "x", result)
    amid.commit(["create", keys.ATTEMPTS + amid.key, "late"])


@found_by("once_per_stage", LOST_ANSWERS)
def stage_twice_unanswered(amid: Amid) -> None:
    """A stage is recorded again, when the record of a commit without an answer was read."""
    stage = f"{keys.STAGES}{amid.key}/s"
    amid.commit(["create", stage, "one"], answer=None)
    amid.read(amid.next(), "one", stage)
    amid.commit(["create", stage, "two"])
