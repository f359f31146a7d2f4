"""A cluster whose every text is hostile to the program that prints it."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from jrs.backends.file.backend import FileBackend
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.history import ClusterHistory, HistoryEvent
from jrs.records.model import (
    AttemptRecord,
    CancelRequest,
    CleanupJournal,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    MasterInfo,
    StageRecord,
    StageSummary,
    StopMode,
    StopRecord,
    StopState,
)
from jrs.records.snapshots import SnapshotFormat, SnapshotRecord, SnapshotStage
from jrs.store.result_store import JobResultStore

EVIL = (
    "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nFORGED line\x0b\x0c\x85\u2028FORGED too\ud800\udcff\x7f\x00"
    "\u202e\\ [bold]é"
)
"""Commands to a terminal, line ends of all kinds, a forged line and lone surrogates."""
TOLD = EVIL.replace("\0", "").replace("\ud800", "")
"""What of it an operating system takes; `\\udcff` is the byte 255."""
HUGE = b"9" * 5000
"""A number of more digits than Python reads."""


def sealed(name: str, body: bytes) -> bytes:
    """Return a record as a program without our code could write it."""
    return b'{"jrs":"%s/1","crc":"%08x","body":%s}' % (name.encode(), zlib.crc32(body), body)


def make(root: Path) -> None:
    """Make the cluster: a job in each state that is printed, each record with hostile texts."""
    failure = Failure(EVIL, f"ValueError: {EVIL}", f"Traceback\n  {EVIL}\n{EVIL}")
    with FileBackend(root) as backend:
        results = JobResultStore(backend)

        def put(key: str, value: bytes) -> None:
            backend.commit(Create(key, value))

        for job_id in ("failed", "held", "dying", "drained", "suspending", "snapped", "huge"):
            spec = JobSpec(job_id, f"m:{EVIL}", {EVIL: [EVIL, {EVIL: 1}]}, submitted_at=1e300)
            put(keys.JOBS + job_id, encode(spec))
        summary = StageSummary(EVIL, 1, 1, 1.0)
        failed = JobResult("failed", JobStatus.FAILED, None, failure, 2, stages=(summary,))
        results.create_dirty(failed, None)
        journal = CleanupJournal("failed", (EVIL,), 3, {EVIL: EVIL}, exhausted=True)
        put(keys.CLEANUP + "failed", encode(journal))
        done = JobResult("done", JobStatus.FINISHED, {EVIL: [EVIL]}, finished_at=1e300)
        results.create_dirty(done, None)
        results.mark_clean("done", None)

        vast = Failure("exception", EVIL * 12_000, f"{EVIL}\n" * 12_000)
        summaries = tuple(StageSummary(f"{at:04}{EVIL}", 1, 1, 1.0) for at in range(4000))
        long = JobResult("long", JobStatus.FAILED, None, vast, 2, stages=summaries)
        results.create_dirty(long, None)
        put(keys.JOBS + "longer", encode(JobSpec("longer", "m:f")))
        put(keys.ATTEMPTS + "longer", encode(AttemptRecord("longer", 2, 1, "m", failure=vast)))
        for first in range(0, 4000, 100):
            stages = (
                StageRecord("longer", f"{at:04}{EVIL}", EVIL, 1, 1, 1.0, 1.0, order=at)
                for at in range(first, first + 100)
            )
            backend.commit(
                *(Create(keys.stage("longer", one.name[:4]), encode(one)) for one in stages)
            )

        attempt = AttemptRecord("dying", 2, 1, EVIL, 1.0, 1, failure, 1.0)
        put(keys.ATTEMPTS + "dying", encode(attempt))
        put(keys.CANCEL + "dying", encode(CancelRequest("dying", 1.0, EVIL)))
        stage = StageRecord("dying", EVIL, EVIL, 1, 1, 1.0, 1.0, EVIL, target=EVIL)
        put(keys.stage("dying", "sums"), encode(stage))
        for job_id, mode, state in (
            ("held", StopMode.HOLD, StopState.DONE),
            ("drained", StopMode.DRAIN, StopState.REFUSED),
            ("suspending", StopMode.SUSPEND, StopState.REQUESTED),
        ):
            stop = StopRecord(job_id, mode, state, 1.0, EVIL, stages={EVIL: EVIL})
            put(keys.STOPS + job_id, encode(stop))
        put(keys.MASTERS + "m", encode(MasterInfo(EVIL, EVIL, 1, 1.0, 1.0)))
        event = HistoryEvent("", EVIL, EVIL, 1e300, EVIL, EVIL, 1, facts={EVIL: EVIL})
        put(keys.CLUSTER_HISTORY, encode(ClusterHistory((event,))))
        there = f"/nowhere/{TOLD}"
        snapshot = SnapshotRecord(
            "snapped", 1, SnapshotFormat.LINK, 1.0, "0" * 64, 1, 1, 1,
            stages=(SnapshotStage(EVIL, 1, EVIL),), storage=there, copy=there,
        )  # fmt: skip
        put(keys.snapshot("snapped", 1), encode(snapshot))

        put(keys.ATTEMPTS + "huge", sealed("attempt", b'{"job_id":"huge","attempt":%s}' % HUGE))
        put(keys.RESULTS + "vast", sealed("result", b'{"job_id":"vast","payload":[%s]}' % HUGE))
        put(keys.DIRTY + "vast", b"")
        put(keys.STOPS + "snapped", sealed("stop", json.dumps({EVIL: EVIL}).encode()))
        put(keys.JOBS + "torn", f"no record {EVIL}".encode("ascii", "backslashreplace"))
    folder = root / "storage" / "default" / "gone"
    folder.mkdir(parents=True)
    (folder / "out\x1b[2J\nFORGED").mkdir()
