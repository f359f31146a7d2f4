"""What a job that has not ended waits for, and what it did last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jrs.contract.errors import JrsError
from jrs.recovery.files import logs
from jrs.recovery.inspect.explain import Explainer, Explanation
from jrs.store.job_views import JobView, of_jobs
from jrs.testing.chaos.cluster import ChaosCluster

_MOST = 10
"""Jobs that are explained."""
_EVENTS = 5
"""The newest events of a job that are told."""
_BYTES = 2000
"""Bytes of the end of its newest attempt's standard error."""


def explained(cluster: ChaosCluster, job_ids: Sequence[str]) -> dict[str, str]:
    """Return what `jrs explain` says of the first of some jobs, what masters told of them last, and
    the end of the standard error of their newest attempts; nothing if the store does not answer."""
    try:
        views = list(of_jobs(cluster.backend, job_ids[:_MOST]))
        explanations = list(Explainer(cluster.backend).explain_all(views))
    except JrsError:
        return {}
    return {
        view.job_id: "\n".join(_lines(cluster, view, explanation))
        for view, explanation in zip(views, explanations, strict=True)
    }


def _lines(cluster: ChaosCluster, view: JobView, explanation: Explanation) -> Iterator[str]:
    yield str(explanation)
    yield from explanation.details
    told = [event for event in list(cluster.masters.events) if event.job_id == view.job_id]
    for event in told[-_EVENTS:]:
        stage = event.stage and f" stage {event.stage}"
        yield f"{event.master}, epoch {event.epoch}: {event.kind}{stage} {event.message}".rstrip()
    if view.attempt is not None:
        folder = cluster.storage / cluster.name / view.job_id / "logs"
        printed = logs.end_of(logs.stream(folder, view.attempt.attempt, "err"), _BYTES)
        yield from printed.decode(errors="replace").splitlines()
