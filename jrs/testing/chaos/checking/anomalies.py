"""Faults to plant in histories that have none, each with the check that has to find it.

Each function adds operations on keys of their own at a moment amid the others; the versions that
they use lie between those of the history.
"""

from __future__ import annotations

from functools import partial

import attrs

from jrs.contract.operations import EPOCH_KEY
from jrs.records import keys
from jrs.testing.chaos.checking import planted
from jrs.testing.chaos.checking.planted import Amid, Anomaly
from jrs.testing.chaos.recorded import Event, Kind, Verb

ANOMALIES: dict[str, Anomaly] = {}
"""The faults of this module, by their names; `broken_rules` has those of the protocol, and
`lost_answers` those of commits without an answer."""

found_by = partial(planted.found_by, among=ANOMALIES)


# -- of one key ------------------------------------------------------------------------------


@found_by("linearizable")
def stale_read(amid: Amid) -> None:
    """A version is read that had been replaced, and nobody has read the new one."""
    old = amid.next()
    amid.commit(["create", amid.key, "old"])
    amid.read(old, "old")
    amid.commit(["update", amid.key, "new", old])
    amid.read(old, "old")


@found_by("linearizable")
def stale_absence(amid: Amid) -> None:
    """A key is said to be absent that had been written, and nobody has read it."""
    amid.commit(["create", amid.key, "written"])
    amid.read(None, None)


@found_by("linearizable")
def lacking_page(amid: Amid) -> None:
    """A page lacks a key that had been written."""
    amid.commit(["create", amid.key, "written"])
    amid.read(amid.next(), "written")
    amid._add(Verb.SCAN, Kind.OK, None, keys.DOCTOR, None, [None, None, []], "", {})


@found_by("linearizable")
def undone_delete(amid: Amid) -> None:
    """A version is read that was deleted, whichever it was."""
    version = amid.next()
    amid.commit(["create", amid.key, "written"])
    amid.read(version, "written")
    amid.commit(["delete", amid.key, None])
    amid.read(version, "written")


@found_by("linearizable")
def lost_update(amid: Amid) -> None:
    """Two commits of known outcome replace the same version."""
    version = amid.next()
    amid.commit(["create", amid.key, "written"])
    amid.read(version, "written")
    now = amid.now
    amid.commit(["update", amid.key, "one", version], at=now + 1)
    amid.commit(["update", amid.key, "two", version], at=now + 1)


@found_by("linearizable")
def replaced_twice(amid: Amid) -> None:
    """A version is replaced by a commit, and by another one of unknown outcome that is seen."""
    version = amid.next()
    amid.commit(["create", amid.key, "written"])
    now = amid.now
    amid.commit(["update", amid.key, "one", version], answer=Kind.INFO, at=now + 1)
    amid.commit(["update", amid.key, "two", version], at=now + 1)
    amid.read(amid.next(), "one")


@found_by("linearizable")
def value_from_nowhere(amid: Amid) -> None:
    """A value is read that nobody has written."""
    amid.read(amid.next(), "nowhere")


@found_by("linearizable")
def value_twice(amid: Amid) -> None:
    """One write is seen as two versions."""
    amid.commit(["create", amid.key, "once"])
    amid.read(amid.next(), "once")
    amid.read(amid.next(), "once")


@found_by("linearizable")
def early_read(amid: Amid) -> None:
    """A value is read before its writer has begun."""
    amid.read(amid.next(), "later")
    amid.commit(["create", amid.key, "later"])


@found_by("linearizable")
def aborted_read(amid: Amid) -> None:
    """A value is read whose commit was refused."""
    amid.commit(["create", amid.key, "x"], answer=Kind.FAIL, error="Unavailable")
    amid.read(amid.next(), "x")


@found_by("linearizable")
def created_twice(amid: Amid) -> None:
    """A key is created twice, and was not deleted in between."""
    amid.commit(["create", amid.key, "one"])
    amid.commit(["create", amid.key, "two"])


@found_by("linearizable")
def created_at_once(amid: Amid) -> None:
    """Two creations of a key at a time are accepted, and it is deleted once."""
    now = amid.now + 1
    amid.commit(["create", amid.key, "one"], at=now)
    amid.commit(["create", amid.key, "two"], at=now)
    amid.commit(["delete", amid.key, None])


@found_by("linearizable")
def deleted_at_once(amid: Amid) -> None:
    """Two deletes of a key are accepted, which was created once."""
    amid.commit(["create", amid.key, "one"])
    now = amid.now + 1
    amid.commit(["delete", amid.key, None], at=now)
    amid.commit(["delete", amid.key, None], at=now)


@found_by("linearizable")
def two_values(amid: Amid) -> None:
    """One version is read with two values."""
    version = amid.next()
    amid.commit(["create", amid.key, "one"], answer=None)
    amid.commit(["create", amid.key, "two"], answer=None)
    amid.read(version, "one")
    amid.read(version, "two")


@found_by("linearizable")
def refused_without_cause(amid: Amid) -> None:
    """A commit is refused though its condition holds."""
    version = amid.next()
    amid.commit(["create", amid.key, "x"])
    amid.read(version, "x")
    amid.commit(["update", amid.key, "y", version], answer=Kind.FAIL,
                error=f"Conflict {amid.key}")  # fmt: skip


@found_by("linearizable")
def refused_behind_delete(amid: Amid) -> None:
    """A creation is refused long after the delete of the key."""
    amid.commit(["create", amid.key, "x"])
    amid.commit(["delete", amid.key, None])
    amid.commit(["create", amid.key, "y"], answer=Kind.FAIL, error=f"Conflict {amid.key}")


# -- of leaders and jobs ---------------------------------------------------------------------


@found_by("fenced")
def older_epoch(amid: Amid) -> None:
    """A commit of a leader is accepted behind the beginning of its successor."""
    epoch, version, began = max(amid.leads)
    amid.now = max(amid.now, began)
    check = ["check", EPOCH_KEY, version - 1]
    amid.commit(["create", amid.key, "x"], check, epoch=epoch - 1, version=version - 1)


@found_by("fenced")
def older_epoch_by_version(amid: Amid) -> None:
    """Such a commit, that began early: what it wrote has a later version."""
    epoch, version, _ = min(amid.leads)
    amid.commit(["create", amid.key, "x"], at=0, epoch=epoch - 1)
    amid.read(version + 1, "x")


@found_by("once_per_job")
def two_results(amid: Amid) -> None:
    """A job has two results."""
    result = keys.RESULTS + amid.key
    amid.commit(["create", result, "one"])
    amid.commit(["create", result, "two"])


@found_by("once_per_job")
def attempt_behind_result(amid: Amid) -> None:
    """An attempt begins when its job has ended."""
    amid.commit(["create", keys.RESULTS + amid.key, "x"])
    amid.now += 1
    amid.sign(f"late-{amid.key}", amid.key)


@found_by("once_per_job")
def two_results_around_a_delete(amid: Amid) -> None:
    """A job gets another result when its first one was deleted."""
    result = keys.RESULTS + amid.key
    amid.commit(["create", result, "one"])
    amid.commit(["delete", result, None])
    amid.commit(["create", result, "two"])


@found_by("once_per_job")
def attempt_behind_expiry(amid: Amid) -> None:
    """An attempt begins when the result of its job has become a tombstone."""
    amid.commit(["create", keys.RESULTS + amid.key, "x"])
    amid.commit(
        ["delete", keys.RESULTS + amid.key, None],
        ["create", keys.TOMBSTONES + amid.key, "y"],
    )
    amid.now += 1
    amid.sign(f"late-{amid.key}", amid.key)


@found_by("once_per_stage")
def stage_twice(amid: Amid) -> None:
    """A stage is recorded twice."""
    amid.commit(["create", f"{keys.STAGES}{amid.key}/s", "one"])
    amid.commit(["create", f"{keys.STAGES}{amid.key}/s", "two"])


@found_by("once_per_stage")
def stage_twice_at_once(amid: Amid) -> None:
    """Two attempts record a stage at a time; then the job is cleaned up."""
    stage, now = f"{keys.STAGES}{amid.key}/s", amid.now + 1
    amid.commit(["create", stage, "one"], at=now)
    amid.commit(["create", stage, "two"], at=now)
    amid.commit(["delete", stage, None])


@found_by("no_overlap")
def overlap(amid: Amid) -> None:
    """An attempt begins while another one of its job lives."""
    amid.sign(f"one-{amid.key}", amid.key)
    amid.sign(f"two-{amid.key}", amid.key)


@found_by("no_overlap")
def overlap_in_threads(amid: Amid) -> None:
    """Such attempts, which are threads of two drivers; each of these runs another job, too."""
    signs = [
        Event(f"{process}-{amid.key}", seq, Kind.INFO, Verb.ALIVE, amid.now, job_id, version=1)
        for process in ("one", "two")
        for seq, job_id in enumerate((amid.key, f"{amid.key}-{process}"))
    ]
    for later in range(2):
        for one in signs:
            amid.now += 1
            amid.events.append(attrs.evolve(one, t=amid.now, seq=one.seq + 2 * later))


@found_by("watched")
def unreported_change(amid: Amid) -> None:
    """A watch names another key than the one that has changed."""
    amid.watch([f"{amid.key}-another"])


@found_by("nothing_lost")
def lost_job(amid: Amid) -> None:
    """A job was submitted, and never ends."""
    amid.commit(["create", keys.JOBS + amid.key, "x"])


@found_by("nothing_lost")
def lost_result(amid: Amid) -> None:
    """A result is gone, and nobody had deleted it."""
    amid.commit(["create", keys.RESULTS + amid.key, "x"])
    amid.read(None, None, keys.RESULTS + amid.key)


@found_by("nothing_lost")
def result_away(amid: Amid) -> None:
    """A result is gone for a while."""
    result, version = keys.RESULTS + amid.key, amid.next()
    amid.commit(["create", result, "x"])
    amid.read(None, None, result)
    amid.read(version, "x", result)


@found_by("nothing_lost")
def deleted_result(amid: Amid) -> None:
    """A result is deleted, and no tombstone is left in its place."""
    amid.commit(["create", keys.RESULTS + amid.key, "x"])
    amid.commit(["delete", keys.RESULTS + amid.key, None])


@found_by("nothing_lost")
def result_lost_by_an_unknown_delete(amid: Amid) -> None:
    """Such a delete of unknown outcome; the result is gone."""
    amid.commit(["create", keys.RESULTS + amid.key, "x"])
    amid.commit(["delete", keys.RESULTS + amid.key, None], answer=None)
    amid.read(None, None, keys.RESULTS + amid.key)


# -- of several keys -------------------------------------------------------------------------


def _two_keys(amid: Amid) -> tuple[str, str, int, int]:
    one, two = f"{amid.key}/1", f"{amid.key}/2"
    amid.commit(["create", one, "1"], ["create", two, "1"])
    version = amid.next()
    amid.page([one, version, "1"], [two, version, "1"])
    return one, two, version, amid.now + 1


@found_by("outcomes")
def half_commit(amid: Amid) -> None:
    """A commit of unknown outcome has written one key, and not the other one."""
    one, two, version, _ = _two_keys(amid)
    amid.commit(["update", one, "2", version], ["update", two, "2", version], answer=Kind.INFO)
    amid.read(amid.next(), "2", one)
    amid.commit(["update", two, "3", version])


@found_by("outcomes")
def half_creation(amid: Amid) -> None:
    """Such a commit was to create two keys; one is read, and then the other one is absent."""
    one, two = f"{amid.key}/1", f"{amid.key}/2"
    amid.commit(["create", one, "1"], ["create", two, "1"], answer=None)
    amid.read(amid.next(), "1", one)
    amid.read(None, None, two)


@found_by("outcomes")
def half_update(amid: Amid) -> None:
    """Such a commit, and the key that it has not written is read afterwards as it was."""
    one, two, version, _ = _two_keys(amid)
    amid.commit(["update", one, "2", version], ["update", two, "2", version], answer=Kind.INFO)
    amid.read(amid.next(), "2", one)
    amid.read(version, "1", two)


@found_by("serializable")
def half_commit_seen(amid: Amid) -> None:
    """Such a commit, and the key that it has not written is only read afterwards."""
    one, two, version, _ = _two_keys(amid)
    amid.commit(["update", one, "2", version], ["update", two, "2", version], answer=None)
    amid.read(amid.next(), "2", one)
    amid.read(version, "1", two)


@found_by("serializable")
def g0(amid: Amid) -> None:
    """Of two commits, each replaces what the other one wrote."""
    one, two, version, now = _two_keys(amid)
    first, second = amid.next(), amid.next()
    amid.commit(["update", one, "a", version], ["update", two, "a", second], at=now)
    amid.commit(["update", one, "b", first], ["update", two, "b", version], at=now)
    amid.page([one, first, "a"], [two, second, "b"], at=now)


@found_by("serializable")
def g1c(amid: Amid) -> None:
    """Of two commits, each has read what the other one wrote."""
    one, two, version, now = _two_keys(amid)
    new = amid.next()
    amid.commit(["update", one, "a", version], ["check", two, new], at=now)
    amid.commit(["update", two, "b", version], ["check", one, new], at=now)
    amid.page([one, new, "a"], [two, new, "b"])


@found_by("serializable")
def g_single(amid: Amid) -> None:
    """Many keys are read at once, one with what a commit wrote, one with what it replaced."""
    one, two, version, now = _two_keys(amid)
    amid.commit(["update", one, "a", version], ["update", two, "a", version], at=now)
    amid.page([one, amid.next(), "a"], [two, version, "1"], at=now)


@found_by("serializable")
def write_skew(amid: Amid) -> None:
    """Of two commits, each replaces what the other one requires (G2)."""
    one, two, version, now = _two_keys(amid)
    amid.commit(["update", one, "a", version], ["check", two, version], at=now)
    amid.commit(["update", two, "b", version], ["check", one, version], at=now)


@found_by("serializable")
def long_fork(amid: Amid) -> None:
    """Two readers see two commits in two orders."""
    one, two, version, now = _two_keys(amid)
    new = amid.next()
    amid.commit(["update", one, "a", version], at=now)
    amid.commit(["update", two, "b", version], at=now)
    amid.page([one, new, "a"], [two, version, "1"], at=now)
    amid.page([one, version, "1"], [two, new, "b"], at=now)
