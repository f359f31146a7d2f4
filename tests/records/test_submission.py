"""The digest of what was asked for: each version makes the same, so it knows what is repeated."""

from __future__ import annotations

from jrs.records import submission
from jrs.records.lineage import Lineage, LineageKind
from jrs.records.model import JobSpec, RunnerKind
from jrs.records.on_result import OnResult
from jrs.records.policies import RestartPolicy, SnapshotPolicy
from jrs.records.settings import JobSettings
from jrs.records.time_limits import TimeLimits


def test_the_digests_of_fixed_requests() -> None:
    """Versions before and after this one make these, so never change them: mend what does."""
    bare = JobSpec("nightly", "etl.jobs:nightly")
    given = JobSpec(
        "nightly", "etl.jobs:nightly", {"day": "2026-11-20", "n": [1, 2.0, None], "ä": {"b": True}},
        runner=RunnerKind.PROCESS, restart=RestartPolicy(attempts=7),
        snapshots=SnapshotPolicy(keep=9), partitions=8, priority=-3, slots=2, tags=("b", "a"),
        timeout=TimeLimits(job=60.5), settings=JobSettings(conf={"spark.b": "1", "spark.a": "2"}),
        on_result=OnResult(run="true x"),
        # None of these is asked for.
        submitted_at=1.0, submitted_by="ops", traceparent=f"00-{1:032x}-{1:016x}-01",
        lineage=Lineage("old", LineageKind.FORK, 3), submission="submit:0",
    )  # fmt: skip

    assert submission.of_spec(bare) == "submit:ee1c2c266cdc457becef8f5079dc909f"
    assert submission.of_spec(given) == "submit:67a84acefb6530122e08e0b4ac721571"
    assert (
        submission.of_retry("a", "b", "s", "m:f", {"x": 1}, {"y": 2.0})
        == "retry:31b7d329e31c455d011d0e4d883f3d5c"
    )
    assert (
        submission.of_retry("a", None, "", None, None, {})
        == "retry:0797702411bca135847f0c273781dfa2"
    )
