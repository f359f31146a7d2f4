"""Lineage and traces of a job on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.records.model import JobSpec, JobStatus
from jrs.recovery.rules.lineage_runs import run_id
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from tests.recovery.spans import SPANS
from tests.recovery.test_tracing import GOOD, spans

TRACED = Path(__file__).with_name("traced.py")


@pytest.mark.spark
def test_a_stream(tmp_path: Path) -> None:
    """A streaming stage is a span of the attempt, too; OpenLineage's listener of the session would
    name the attempt as its parent, and no session is prepared ahead for the next one."""
    source, path = tmp_path / "in", tmp_path / "spans"
    source.mkdir()
    (source / "0.txt").write_text("line\n")
    with Masters(
        (tmp_path / "store").as_uri(), cluster="c", ttl=30.0, environment={SPANS: str(path)}
    ) as masters:
        masters.start("m")
        entry = f"{TRACED}:streams"
        JobCatalog(masters.backend).submit(
            JobSpec("j", entry, {"folder": str(source)}, traceparent=GOOD)
        )
        result = JobResultStore(masters.backend).wait("j", 240)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    parent = {"JobNamespace": "jrs://c", "JobName": "j", "RunId": run_id("c", "j", 1)}
    assert result.payload == {"parent": parent, "recorded": False}
    found = spans(path)
    (attempt,) = (one for one in found if one["name"] == "jrs.attempt")
    stages = {one["jrs.stage"]: one["parent"] for one in found if one["name"] == "jrs.stage"}
    assert stages == {"first": attempt["span"], "lines": attempt["span"]}
    assert {one["trace"] for one in found} == {GOOD.split("-")[1]}
