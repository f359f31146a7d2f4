"""The metrics of a master, as OpenMetrics or in the text format of Prometheus.

All of them exist from the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from .facts import BUCKETS, MasterFacts

_STATES = ("running", "queued", "held", "cleanup")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TOTAL = "_total"


@attrs.frozen
class Metric:
    """One metric: its name, its kind, what it says, and its values by the rest of their names."""

    name: str
    kind: str
    help: str
    values: Mapping[str, float]

    def lines(self, *, as_open: bool) -> Iterator[str]:
        """Yield its lines. OpenMetrics names a counter without the end of its samples' names."""
        family = self.name.removesuffix(_TOTAL) if as_open else self.name
        yield f"# HELP {family} {self.help}"
        yield f"# TYPE {family} {self.kind}"
        for labels, value in self.values.items():
            yield f"{self.name}{labels} {float(value)!r}"


def exposition(facts: MasterFacts, *, as_open: bool = False) -> str:
    """Return all metrics of a master, as OpenMetrics or in the text format."""
    text = "".join(f"{line}\n" for one in metrics(facts) for line in one.lines(as_open=as_open))
    return f"{text}# EOF\n" if as_open else text


def asks_open(accept: str) -> bool:
    """Return whether the header Accept of a request prefers OpenMetrics to the text format."""
    found = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for one in accept.lower().split(","):
        kind, *rest = (part.strip() for part in one.split(";"))
        params = dict(part.partition("=")[::2] for part in rest)
        is_other = kind != "text/plain" and params.get("version", "1.0.0") != "1.0.0"
        if kind in found and not is_other:
            found[kind] = max(found[kind], _quality(params.get("q", "1")))
    wanted, text = found.values()
    return 0.0 < wanted >= text


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def metrics(facts: MasterFacts) -> Iterator[Metric]:
    """Yield all metrics of a master."""
    yield _gauge("jrs_leader", "Whether this master leads: 1 or 0.", facts.leads)
    yield _gauge(
        "jrs_epoch", "The epoch in which this master leads; 0 if it does not.", facts.epoch
    )
    yield _gauge(
        "jrs_lease_remaining_seconds",
        "Time until the lease of this leader ends unless it is renewed; 0 if it does not lead.",
        facts.lease,
    )
    yield _gauge(
        "jrs_loop_age_seconds",
        "Time since the loop of this leader last completed a pass; 0 if it does not lead.",
        facts.turn_age,
    )
    yield _gauge(
        "jrs_backend_reachable",
        "Whether the backend has acknowledged a heartbeat in the last 15 seconds: 1 or 0.",
        facts.reachable,
    )
    yield _gauge(
        "jrs_master_held",
        "Whether this master must not lead before an operator has repaired something: 1 or 0.",
        bool(facts.leaderships.held),
    )
    yield _counter(
        "jrs_elections_total", "Times that this master was elected.", facts.leaderships.elections
    )
    yield Metric(
        "jrs_leaderships_ended_total",
        "counter",
        "Leaderships of this master that have ended, by how.",
        {'{how="lost"}': facts.leaderships.lost, '{how="resigned"}': facts.leaderships.resigned},
    )
    yield _gauge(
        "jrs_leaders_lost",
        "Leaders of the cluster that ended in the last hour and had not resigned; 0 if this master "
        "does not lead.",
        facts.leaderships.lost_lately,
    )
    yield Metric(
        "jrs_jobs",
        "gauge",
        "Jobs by the decision of this leader; all 0 if this master does not lead.",
        {f'{{state="{name}"}}': float(getattr(facts.jobs, name)) for name in _STATES},
    )
    yield _gauge(
        "jrs_queue_oldest_seconds",
        "Time for which the job has waited for a slot that waits the longest, under this leader; "
        "0 if none does.",
        facts.jobs.oldest_queued,
    )
    yield _gauge(
        "jrs_cleanup_oldest_seconds",
        "Time since the end of the job whose result has been dirty the longest; 0 if none is.",
        facts.jobs.oldest_cleanup,
    )
    yield _gauge(
        "jrs_snapshot_overdue_seconds",
        "Time since the scheduled snapshot of a running job was due that waits the longest; 0 if "
        "none does.",
        facts.jobs.snapshot_overdue,
    )
    yield _counter(
        "jrs_attempts_started_total", "Attempts that this master has started.",
        facts.attempts.started,
    )  # fmt: skip
    yield Metric(
        "jrs_attempts_ended_total",
        "counter",
        "Attempts of this master that have ended, by how.",
        {f'{{how="{how}"}}': number for how, number in sorted(facts.attempts.ended.items())},
    )
    yield _counter(
        "jrs_commits_fenced_total",
        "Commits of this process that were refused because a newer leader exists.",
        facts.commits.fenced,
    )
    yield _counter(
        "jrs_commits_unknown_total",
        "Commits of this process whose outcome was unknown; each was read back.",
        facts.commits.unknown,
    )
    yield _gauge(
        "jrs_export_failing_seconds",
        "How long the export to OpenLineage has failed; 0 if it works, or if there is none.",
        facts.export.failing,
    )
    yield _counter(
        "jrs_export_refused_total",
        "Events that OpenLineage has rejected, and that the leader has skipped.",
        facts.export.refused,
    )
    yield Metric(
        "jrs_upkeep_failing_seconds",
        "gauge",
        "Time since what keeps the cluster small has failed, by what; 0 if it works, or if this "
        "master does not do it.",
        {f'{{what="{what}"}}': seconds for what, seconds in facts.upkeep.items()},
    )
    yield from _failovers(facts)


def _failovers(facts: MasterFacts) -> Iterator[Metric]:
    bounds = [f"{bound!r}" for bound in BUCKETS]
    counts = dict(zip(bounds, facts.failovers.within, strict=True))
    buckets = {f'_bucket{{le="{bound}"}}': count for bound, count in counts.items()}
    yield Metric(
        "jrs_failover_seconds",
        "histogram",
        "Time from an election of this master until it had decided about running jobs, and led.",
        {
            **buckets,
            '_bucket{le="+Inf"}': facts.failovers.count,
            "_sum": facts.failovers.seconds,
            "_count": facts.failovers.count,
        },
    )


def _gauge(name: str, said: str, value: float) -> Metric:
    return Metric(name, "gauge", said, {"": float(value)})


def _counter(name: str, said: str, value: float) -> Metric:
    return Metric(name, "counter", said, {"": value})
