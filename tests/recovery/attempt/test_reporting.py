"""What an attempt reports to its master while it runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.client.client import Client
from jrs.contract.errors import WrongState
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobSpec, JobStatus, RunnerKind, StageRecord
from jrs.recovery.attempt.job import Job
from jrs.recovery.attempt.reporter import PipeReporter, Reporter, StageReport
from jrs.recovery.attempt.runners.reports import ReportPipe, Reports
from jrs.recovery.attempt.runners.thread import ThreadRunner
from jrs.recovery.rules.events import EventKind
from tests.recovery.support import FaultyMemory, Leader
from tests.support import BOUND, descriptors, until


@pytest.fixture
def got() -> list[StageReport]:
    return []


@pytest.fixture
def pipe(got: list[StageReport]) -> Iterator[ReportPipe]:
    """A pipe that is read."""
    reports = Reports()
    pipe = reports.open(got.append)
    yield pipe
    reports.close(pipe)
    reports.close(pipe)
    reports.end()


def readers() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == "jrs-attempt-reports"}


def test_the_end_of_reading(got: list[StageReport]) -> None:
    """No thread stays, and no descriptor but those of open pipes. What comes later is read."""
    reports, before, threads = Reports(), descriptors(), readers()
    first = reports.open(got.append)
    reports.end()
    reports.end()

    assert readers() == threads

    second = reports.open(got.append)
    Reporter(PipeReporter(second.writing)).begun("second")
    until(lambda: got, "the report arrives")
    Reporter(PipeReporter(first.writing)).begun("first")
    reports.close(first)

    assert [each.stage for each in got] == ["second", "first"]

    reports.end()
    reports.close(second)
    os.close(first.writing)
    os.close(second.writing)
    assert descriptors() <= before


def test_steps_of_stages(pipe: ReportPipe, got: list[StageReport]) -> None:
    """U14: each step arrives as a whole, in order, by whatever thread."""
    reporter = Reporter(PipeReporter(pipe.writing), now=lambda: 5.0)

    def report(name: str) -> None:
        for last in range(9):
            reporter.committed(name, 1, last)

    threads = [threading.Thread(target=report, args=(f"s{n}",)) for n in range(4)]
    reporter.begun("s0")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reporter.published("s0", "/p" * 4000)
    os.close(pipe.writing)
    until(lambda: len(got) == 38, "all arrive")

    assert (got[0].kind, got[0].stage, got[0].message) == (
        EventKind.STAGE_BEGUN, "s0", "stage s0 begins",
    )  # fmt: skip
    assert got[-1].kind is EventKind.PUBLISHED
    assert len(got[-1].to_line()) < 4096
    for n in range(4):
        mine = [each for each in got if each.stage == f"s{n}" and each.kind is EventKind.BATCH]
        assert [each.message for each in mine] == [
            f"stage s{n} committed " + ("batch 1" if i == 1 else f"batches 1 to {i}")
            for i in range(9)
        ]


def test_a_master_that_does_not_read() -> None:
    """U14: a full pipe, or a dead master, never blocks the attempt; what is dropped is counted."""
    reading, writing = os.pipe()
    reporter = Reporter(PipeReporter(writing))
    for number in range(2000):  # More than a pipe holds.
        reporter.committed("s", number, number)
    held = os.read(reading, 1 << 20)
    lines = [line for line in held.split(b"\n") if line]
    reporter.begun("after")
    last = StageReport.from_line(os.read(reading, 1 << 20))
    os.close(reading)
    reporter.begun("nobody hears")

    assert all(StageReport.from_line(line) for line in lines)
    assert last is not None
    assert (last.stage, last.dropped) == ("after", 2000 - len(lines))
    os.close(writing)


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"\xff", b"7",
     b'{"kind":"leading","stage":"","message":"","at":1,"dropped":0}',
     b'{"kind":"published","stage":"","message":"","at":"x","dropped":0}', b"[" * 100_000,
     b'{"kind":"published","stage":"","message":"","at":1,"dropped":Infinity}',
     b'{"kind":[],"stage":"","message":"","at":1,"dropped":0}'],
)  # fmt: skip
def test_what_is_no_report(pipe: ReportPipe, got: list[StageReport], line: bytes) -> None:
    """What a job writes there is passed over: it cannot forge an event of its master."""
    os.write(pipe.writing, line[: 1 << 15] + b"\n")
    Reporter(PipeReporter(pipe.writing)).begun("s")
    os.close(pipe.writing)
    until(lambda: got, "the report arrives")

    assert [each.stage for each in got] == ["s"]


def test_a_report_that_cannot_be_passed_on(got: list[StageReport]) -> None:
    """It costs neither the reports after it, nor those of other attempts."""

    def broken(report: StageReport) -> None:
        got.append(report)
        if report.stage == "bad":
            raise RuntimeError("the screen is gone")

    reports = Reports()
    pipes = [reports.open(broken), reports.open(broken)]
    for stage in ("bad", "good"):
        for pipe in pipes:
            Reporter(PipeReporter(pipe.writing)).begun(stage)
    until(lambda: len(got) == 4, "all reports arrive")
    for pipe in pipes:
        os.close(pipe.writing)
        reports.close(pipe)
    reports.end()


def stages(job: Job) -> int:
    written = job.stage("one", lambda stage: (stage.output / "rows").write_text("1") and 1)
    return written.result()


def test_events_and_waiting_for_a_stage(memory: FaultyMemory, tmp_path: Path) -> None:
    """U14: a leader emits the steps as events, and a client waits for a stage by its name."""
    with Client(memory, storage=tmp_path) as client:
        spec = JobSpec("job", f"{__name__}:stages", runner=RunnerKind.THREAD)
        with Leader(client.backend, tmp_path, runner=ThreadRunner()) as leader:
            job = client.submit_spec(spec)
            summary = job.wait_stage("one", timeout=BOUND)
            assert job.result(BOUND).status is JobStatus.FINISHED
            kinds = [event.kind for event in leader.events if event.stage == "one"]

        assert (summary.name, summary.attempt) == ("one", 1)
        assert kinds == [EventKind.STAGE_BEGUN, EventKind.STAGE_FINISHED, EventKind.PUBLISHED]
        assert job.wait_stage("one").attempt == 1  # By its result.
        with pytest.raises(WrongState, match=r"'job' has FINISHED at .*; no stage 'two'"):
            job.wait_stage("two")

        later = client.submit("m:f", id="later")
        with pytest.raises(TimeoutError, match="stage 'one' of job 'later'"):
            later.wait_stage("one", timeout=0.01)
        record = StageRecord("later", "one", None, 1, 1, 2.5, 1.0)
        put = Create(keys.stage("later", "one"), encode(record))
        threading.Timer(0.05, lambda: client.backend.commit(put)).start()
        assert later.wait_stage("one", timeout=BOUND).seconds == 2.5
