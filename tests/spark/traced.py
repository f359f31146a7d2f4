"""A job on Spark that traces itself, and whose session has a listener for lineage."""

from __future__ import annotations

from typing import Any

import jrs
from jrs.recovery.attempt.job import context_of
from jrs.recovery.spark import lineage
from tests.recovery import traced_jobs

lineage.LISTENER = "org.apache.spark.scheduler.StatsReportListener"  # One that Spark itself has.
assert traced_jobs  # It sets OpenTelemetry's SDK up.


def streams(job: jrs.Job, folder: str) -> dict[str, Any]:
    """Read a folder by a stream; return the parent of the session, and whether it was recorded for
    a session that is prepared ahead."""
    session = jrs.spark(job, {"spark.extraListeners": lineage.LISTENER})
    job.stage("first", lambda stage: 1)
    job.stream(
        "lines",
        lambda stage: session.readStream.text(stage.files(folder)).writeStream.format("jrs"),
        bounded=True,
    ).result()
    own = context_of(job).own.record
    conf = session.sparkContext.getConf()
    parent = {
        name: conf.get(f"spark.openlineage.parent{name}")
        for name in ("JobNamespace", "JobName", "RunId")
    }
    return {"parent": parent, "recorded": own is not None and own.session is not None}
