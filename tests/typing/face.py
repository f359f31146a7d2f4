"""The public face as a user's type checker sees it. Checked by mypy and pyright, never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import jrs


def stages(job: jrs.Job) -> dict[str, int]:
    """A stage has the type of its function's result, in both forms."""
    counted = job.stage("count", lambda stage: len(list(stage.output.iterdir())))
    assert_type(counted.result(), int)

    @job.stage("names", after=[counted])
    def names(stage: jrs.Stage) -> list[str]:
        return [stage.name]

    assert_type(names.result(), list[str])
    assert_type(names.output, Path)
    published = job.publish("/warehouse/day=1", counted, names)
    assert_type(published.skipped, bool)
    job.log.info("%d rows", counted.result())
    return {"rows": counted.result()}


def streams(job: jrs.Job) -> None:
    """A stream can be waited for, and other stages come after it."""

    def build(stage: jrs.StreamStage) -> Any:
        return stage.spark.readStream.format("rate").load().writeStream

    stream = job.stream("rate", build, bounded=True, restart=jrs.RestartPolicy(attempts=2))
    assert_type(stream, jrs.Stream)
    job.stage("after", lambda stage: None, after=[stream])


def client() -> None:
    """A client hands out jobs, and those their results."""
    with jrs.connect("file:///var/lib/jrs", cluster="etl") as connected:
        job = connected.submit(stages, id="nightly", restart=jrs.RestartPolicy(attempts=3))
        assert_type(job, jrs.JobHandle)
        assert_type(job.result(timeout=1.0), jrs.JobResult)
        assert_type(job.status(), jrs.JobStatus | None)
        assert_type(job.snapshots.create("before"), jrs.SnapshotRecord)
        for each in connected.jobs(status=jrs.JobStatus.FAILED, prefix="nightly-"):
            assert_type(each, jrs.JobHandle)
        for entry in job.history():
            assert_type(entry.kind, jrs.HistoryKind)
        assert_type(job.left(), dict[str, list[str]])
        assert_type(job.fork("copy").stages[0].batch, int | None)
        assert_type(job.snapshots.newest_usable().record, jrs.SnapshotRecord | None)
        assert_type(job.snapshots.restore(Path("exported"), as_id="copy"), jrs.Restored)


def operator() -> None:
    """What the commands for operators find out has types, too."""
    with jrs.connect("file:///var/lib/jrs", storage=Path("/srv/jobs")) as connected:
        for view in connected.views(state=jrs.ResultState.DIRTY, after="nightly-"):
            assert_type(view.entry, jrs.JobResultEntry | None)
        for master in connected.masters():
            assert_type(master.role, jrs.MasterRole)
            assert_type(master.info, jrs.MasterInfo)
        assert_type(connected.epoch(), jrs.EpochRecord | None)
        assert_type(connected.fsck().damaged, tuple[str, ...])
        assert_type(connected.cluster_format().version, int)
        assert_type(connected.restore(Path("exported")), jrs.Restored)
        for snapshot in connected.snapshots():
            assert_type(snapshot, jrs.SnapshotRecord)
    for found in jrs.diagnose("file:///var/lib/jrs", ttl=5.0):
        assert_type(found.remedy, str | None)


def errors() -> None:
    """What can be caught says what happened."""
    try:
        client()
    except jrs.DuplicateJob as error:
        assert_type(error.state, str)
    except jrs.JobNotFinished as error:
        assert_type(error.result, jrs.JobResult)
    except (jrs.Refused, jrs.Unavailable, jrs.OutcomeUnknown):
        raise


def store_only(backend: jrs.Backend, fence: jrs.Fence) -> None:
    """The store can be embedded by itself."""
    store = jrs.JobResultStore(backend)
    store.create_dirty(jrs.JobResult("job", jrs.JobStatus.FINISHED, payload=1), fence)
    assert_type(store.wait("job", 1.0), jrs.JobResult)


class Table(jrs.Resource):
    """A resource of a user's own."""

    name = "table"

    def clean(self, job_id: str) -> None:
        """Remove it."""


def driver() -> int:
    """Application mode returns what main returns."""
    returned = jrs.run(main, "file:///var/lib/jrs", name="nightly-2026-11-20", cluster="etl")
    assert_type(returned, int)
    return returned


def main(driver: jrs.Driver) -> int:
    """A job of a driver has the type of its function's result."""
    assert_type(driver.run("count", counted, day=1), int)
    return driver.run("count", counted, day=1)


def counted(job: jrs.Job, day: int) -> int:
    return day
