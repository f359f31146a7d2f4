"""The routes of snapshots: each is one call of the client."""

from __future__ import annotations

from itertools import chain, groupby
from typing import Any

import attrs

from jrs.client import plain
from jrs.client.snapshots import JobSnapshots
from jrs.contract.errors import InvalidInput, WrongState
from jrs.contract.texts import shown
from jrs.records.codec import to_plain
from jrs.records.lineage import LineageKind
from jrs.records.model import JobSpec
from jrs.records.snapshots import SnapshotFormat, SnapshotRecord
from jrs.sidecar.paging import page_of
from jrs.sidecar.reads import MOST_JOBS
from jrs.sidecar.route_form import Call, Kind, Param, Reply, Route, on_storage
from jrs.sidecar.verbs import AS, MADE, once, verb

_FORMATS = tuple(one.value for one in SnapshotFormat if one.is_restorable)


def _of(call: Call) -> JobSnapshots:
    return call.client.job(call["id"]).snapshots


# -- reading -------------------------------------------------------------------------------


def _all(call: Call) -> Reply:
    records = call.client.snapshots(after=call["after"])
    by_job = (list(of_job) for _, of_job in groupby(records, key=lambda one: one.job_id))
    found, last = page_of(by_job, call["limit"], to_plain)
    more = None if last is None else last[0].job_id
    return Reply({"snapshots": list(chain.from_iterable(found)), "next": more})


def _listed(call: Call) -> Reply:
    job = call.client.job(call["id"])
    records = job.snapshots.list()
    if not records:
        job.view()  # Raises if the job does not exist.
    return Reply({"snapshots": to_plain(records)})


def _one(call: Call) -> Reply:
    return Reply(to_plain(_of(call).get(call["snapshot"])))


def _manifest(call: Call) -> Reply:
    return Reply(to_plain(_of(call).manifest(call["snapshot"])))


def _pending(call: Call) -> Reply:
    job = call.client.job(call["id"])
    found = job.snapshots.pending_restore()
    if found is None:
        job.view()  # Raises if the job does not exist.
    return Reply({"restore": None if found is None else to_plain(found)})


# -- changing ------------------------------------------------------------------------------


def _create_snapshot(call: Call) -> Reply:
    snapshots, name = _of(call), call["name"]
    batches = _batches(call["batches"])
    how = None if call["format"] is None else SnapshotFormat(call["format"])
    known = _named(snapshots, name)
    if known is None:
        try:
            made = snapshots.create(name, format=how, output=call["output"], batches=batches)
            return Reply(to_plain(made), 201)
        except InvalidInput:
            known = _named(snapshots, name)  # The same request may have come twice at once.
            if known is None:
                raise
    pinned = {stage.name: stage.batch for stage in known.stages}
    if (
        known.format is not (how or known.format)
        or known.output is not call["output"]
        or not batches.items() <= pinned.items()
    ):
        raise WrongState(f"snapshot {name!r} of job {call['id']!r} exists, and is another one")
    return Reply(to_plain(known))


def _named(snapshots: JobSnapshots, name: str | None) -> SnapshotRecord | None:
    return next((one for one in snapshots.list() if name is not None and one.name == name), None)


def _batches(found: dict[str, Any]) -> dict[str, int]:
    for stage, batch in found.items():
        if type(batch) is not int or batch < 0:
            raise InvalidInput(f"batches has no number for stage {shown(stage)}: {shown(batch)}")
    return found


def _newest_usable(call: Call) -> Reply:
    return Reply(plain.of_usable(_of(call).newest_usable(progress=call.check_awaited)))


def _delete_snapshot(call: Call) -> Reply:
    _of(call).delete(call["snapshot"])
    return Reply({"deleted": True})


def _verify_snapshot(call: Call) -> Reply:
    found = _of(call).verify(call["snapshot"], progress=call.check_awaited)
    return Reply(to_plain(found))


def _convert_snapshot(call: Call) -> Reply:
    return Reply(to_plain(_of(call).convert(call["snapshot"], SnapshotFormat(call["format"]))))


def _restore_snapshot(call: Call) -> Reply:
    snapshots = _of(call)

    def restore() -> plain.Plain:
        return plain.of_restored(
            snapshots.restore(
                call["snapshot"], as_id=call["as_id"], claim=call["claim"],
                accept_published=call["accept_published"],
            )
        )  # fmt: skip

    if call["as_id"] is None:
        return Reply(restore())
    return once(call, LineageKind.RESTORE, restore, lambda made: _is_from(call, made))


def _fork_snapshot(call: Call) -> Reply:
    def fork() -> plain.Plain:
        return plain.of_restored(_of(call).fork(call["snapshot"], call["as_id"]))

    return once(call, LineageKind.FORK, fork, lambda made: _is_from(call, made))


def _is_from(call: Call, made: JobSpec) -> bool:
    """Return whether a job was made from the snapshot that a call names."""
    number = _of(call).get(call["snapshot"]).number
    return made.lineage is not None and made.lineage.snapshot == number


def _finish_restore(call: Call) -> Reply:
    return Reply(plain.of_restored(_of(call).finish_restore()))


# -- the table -----------------------------------------------------------------------------


def _reading_all(route: Route) -> Route:
    return attrs.evolve(route, is_long=True)


_S = "client.job(id).snapshots"
_OF_JOB, _OF_SNAPSHOT = "/v1/jobs/{id}", "/v1/jobs/{id}/snapshots/{snapshot}"
_TAKEN = (
    Param("name", "of the snapshot; a name that exists names that snapshot. Without a name, each "
          "request takes another one"),
    Param("format", "by default, the one of the job's spec", choices=_FORMATS),
    Param("output", "whether to include the published output", Kind.FLAG, default=True),
    Param("batches", "older batches to pin, by stage, that Spark still retains", Kind.OBJECT,
          default={}),
)  # fmt: skip
_RESTORED = (
    Param("as_id", "the id of a new job; without it the suspended job itself is put back"),
    Param("claim", "use the snapshot up", Kind.FLAG, default=False),
    Param("accept_published", "let stay what the job has written or published elsewhere", Kind.FLAG,
          default=False),
)  # fmt: skip

READS = on_storage(
    Route("GET", "/v1/snapshots", "all_snapshots", _all, "A page of the snapshots of all jobs.",
          "client.snapshots(after)",
          (Param("after", "begin after this job; the answer's `next` names it", default=""),
           Param("limit", "the most jobs of this page", Kind.WHOLE, default=50, least=1,
                 most=MOST_JOBS))),
    Route("GET", f"{_OF_JOB}/snapshots", "snapshots", _listed, "A job's snapshots.",
          f"{_S}.list()"),
    Route("GET", _OF_SNAPSHOT, "snapshot", _one, "A snapshot by its number or name.",
          f"{_S}.get(…)"),
    Route("GET", f"{_OF_SNAPSHOT}/manifest", "manifest", _manifest,
          "The contents of a snapshot: its stages, its records, and its files by digest.",
          f"{_S}.manifest(…)"),
    Route("GET", f"{_OF_JOB}/pending-restore", "pending_restore", _pending,
          "The restore of a job that is under way, or was interrupted.", f"{_S}.pending_restore()"),
)  # fmt: skip
"""The routes that read snapshots."""

VERBS = on_storage(
    verb(f"{_OF_JOB}/snapshots", _create_snapshot, "Take a snapshot.", f"{_S}.create(name, …)",
         _TAKEN, MADE),
    _reading_all(verb(
        f"{_OF_JOB}/newest-usable", _newest_usable,
        "Find the newest snapshot that can be restored: checks every byte.",
        f"{_S}.newest_usable()")),
    verb(f"{_OF_JOB}/finish-restore", _finish_restore, "Complete a restore that was interrupted.",
         f"{_S}.finish_restore()"),
    verb(f"{_OF_SNAPSHOT}/delete", _delete_snapshot, "Delete a snapshot.", f"{_S}.delete(…)"),
    _reading_all(verb(
        f"{_OF_SNAPSHOT}/verify", _verify_snapshot, "Check every byte of a snapshot.",
        f"{_S}.verify(…)")),
    verb(f"{_OF_SNAPSHOT}/convert", _convert_snapshot, "Convert a snapshot to another format.",
         f"{_S}.convert(…)",
         (Param("format", "the new one", required=True, choices=_FORMATS),)),
    verb(f"{_OF_SNAPSHOT}/restore", _restore_snapshot, "Restore a job from a snapshot.",
         f"{_S}.restore(…)", _RESTORED, MADE),
    verb(f"{_OF_SNAPSHOT}/fork", _fork_snapshot, "Start a new job from a snapshot.",
         f"{_S}.fork(…)", (AS,), MADE),
)  # fmt: skip
"""The routes that change snapshots, or look at every byte of them."""
