"""Plain JSON of what a client returns: what ``--json`` prints, and what the API answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from jrs.client.client import Client
from jrs.client.job import JobHandle
from jrs.contract.errors import CorruptRecord
from jrs.records.codec import to_plain
from jrs.recovery.inspect.explain import Explanation
from jrs.recovery.inspect.history import HistoryEntry, HistoryPage, PastDecision
from jrs.recovery.inspect.output_files import OutputFiles
from jrs.recovery.snapshots.catalog import RecoverySource
from jrs.recovery.snapshots.restore import Restored
from jrs.store.cluster_format import ClusterFormat
from jrs.store.job_views import JobView

Plain = dict[str, Any]


def of_job(job: JobHandle) -> Plain:
    """Return everything that is known of a job, with its streams and the jobs made from it.

    Raises:
        NoSuchJob: the cluster knows nothing of it.
    """
    return with_descendants(job, job.view())


def with_descendants(job: JobHandle, view: JobView) -> Plain:
    """Return the same of a view that was read already."""
    return {
        **to_plain(view),
        "streams": to_plain(list(job.streams())),
        "descendants": to_plain(list(job.descendants())),
    }


def of_explanation(found: Explanation) -> Plain:
    """Return what a leader does with a job now, and why."""
    return {
        "job_id": found.job_id,
        "decision": found.action.value,
        "reason": found.reason,
        "nobody_leads": found.nobody_leads,
        "details": list(found.details),
    }


def of_past(job_id: str, found: PastDecision) -> Plain:
    """Return what a leader did with a job then, and why."""
    return {**of_history([found.entry])[0], "job_id": job_id, "reason": found.reason}


def of_history(entries: Iterable[HistoryEntry]) -> list[Plain]:
    """Return what happened to a job, or to the cluster."""
    return [
        {
            "id": one.id or None,
            "job_id": one.job_id or None,
            "at": one.at,
            "kind": one.kind.value,
            "text": one.text,
            "by": one.by,
            "epoch": one.epoch or None,
            "attempt": one.attempt or None,
            "action": one.action or None,
            "facts": None if one.facts is None else dict(one.facts),
            "about": None if one.about is None else dict(one.about),
            "request": one.request or None,
        }
        for one in entries
    ]


def of_page(page: HistoryPage) -> Plain:
    """Return some of what happened to all jobs and to the cluster, each with its cursor."""
    return {
        "history": of_fed(page.entries),
        "next": page.cursor,
        "more": page.more,
    }


def of_fed(entries: Iterable[HistoryEntry]) -> list[Plain]:
    """Return entries with their cursors."""
    entries = list(entries)
    plain = zip(of_history(entries), entries, strict=True)
    return [{**found, "cursor": entry.cursor} for found, entry in plain]


def of_files(found: OutputFiles) -> Plain:
    """Return the files of a stage's output, as paths or as URLs of objects."""
    files = [one.url for one in found.objects] or [str(path) for path in found.paths]
    return {"files": files, "cursor": found.cursor}


def of_usable(found: RecoverySource) -> Plain:
    """Return the newest snapshot that can be restored, and why newer ones are left out."""
    return {
        "snapshot": None if found.record is None else to_plain(found.record),
        "skipped": [{"snapshot": to_plain(one), "why": why} for one, why in found.skipped],
    }


def of_restored(restored: Restored) -> Plain:
    """Return the outcome of a restore or a fork."""
    return {
        "job_id": restored.job_id,
        "folder": str(restored.folder),
        "stages": [{"name": stage.name, "batch": stage.batch} for stage in restored.stages],
        "number": restored.number,
        "from_job": restored.from_job,
    }


def of_masters(client: Client) -> Plain:
    """Return the masters of the cluster, its epoch, and the newest switchover."""
    epoch, switchover = client.epoch(), client.last_switchover()
    return {
        "epoch": attrs.asdict(epoch) if epoch else None,
        "masters": [{**to_plain(view.info), "role": view.role.value} for view in client.masters()],
        "switchover": to_plain(switchover) if switchover else None,
    }


def of_cluster(client: Client) -> Plain:
    """Return who leads since when, the masters, a pause, and the format of the records."""
    leads = client.leader()
    return {
        "cluster": client.backend.cluster,
        "leader": None if leads.leader is None else to_plain(leads.leader),
        "summary": str(leads),
        "elected": leads.elected,
        "application": leads.application,
        "since": leads.leader.led_since if leads.leader is not None else leads.since,
        "paused": of_pause(client),
        "format": of_format(client.cluster_format()),
        **of_masters(client),
    }


def of_pause(client: Client) -> Plain | None:
    """Return the pause of the cluster, also one whose record cannot be read."""
    try:
        pause = client.paused()
    except CorruptRecord as error:
        return {"since": 0.0, "by": "", "reason": str(error)}
    return None if pause is None else dict(to_plain(pause))


def of_format(found: ClusterFormat) -> Plain:
    """Return the format of the cluster's records."""
    return dict(attrs.asdict(found))
