"""Whether jobs can run on Spark from this host: one real job in a cluster of its own."""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from jrs.client.client import Client
from jrs.client.job import JobHandle
from jrs.contract.backend import Backend, Diagnostic
from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput, NoSuchCluster
from jrs.contract.runtime import JrsThread
from jrs.records.model import Failure, JobResult, JobStatus
from jrs.records.policies import LONGEST, Keep, RestartPolicy, SnapshotPolicy
from jrs.records.settings import JobSettings
from jrs.records.time_limits import TimeLimits
from jrs.recovery.files import transfer
from jrs.recovery.files.job_folders import storage_place
from jrs.recovery.files.known_storage import known_storage
from jrs.recovery.master import Master
from jrs.recovery.spark import doctor
from jrs.recovery.spark.error_reasons import last_words
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore

_JOB = "doctor"
_ENTRY = "jrs.recovery.spark.doctor:check"
_POLL = 0.1
_TTL = 15.0
_CHECKS = 180.0
"""Seconds that the checks may take once there are executors."""
_ENDS = 30.0
"""Seconds in which the job is cleaned up."""


def diagnose_spark(
    settings: JobSettings | None = None,
    *,
    url: str | None = None,
    cluster: str = "default",
    storage: str | Path | None = None,
    timeout: float = 60.0,
) -> Iterator[Diagnostic]:
    """Yield what a check of Spark finds, as jobs of this host's masters would use it.

    A short job starts a session, by the same code as any attempt, and asks its executors. A check
    that fails has a remedy. The job runs in a cluster of its own, in a temporary folder; its files
    are in a folder of its own in the storage. Both are removed. It creates nothing in the backend.

    Args:
        settings: of the job: Spark's configuration, files, the interpreter, environment and
            secrets.
        url, cluster: the backend and the cluster that tell where jobs keep their files.
        storage: where jobs keep their files; with `url`, as in `connect`. If it is unknown,
            jrs does not check whether executors share it.
        timeout: seconds to wait for the cluster's master, and then for executors.

    Raises:
        InvalidInput: the timeout is not a number of seconds, or as `connect`.

    Example::

        settings = jrs.JobSettings(conf={"spark.master": "spark://spark1:7077"})
        for found in jrs.diagnose_spark(settings, storage="/srv/jrs"):
            print(found.what, found.detail, found.remedy or "")
    """
    if not 0 < timeout <= LONGEST:
        raise InvalidInput(f"the timeout must be a number of seconds above 0, not {timeout!r}")
    named = _storage(url, cluster, storage)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jrs-doctor-")))
        root = named or folder / "files"
        own = f"doctor-{uuid.uuid4().hex[:16]}"
        stack.enter_context(_made_for_a_while(root, own))
        inside = (folder / "store").as_uri()
        backend = stack.enter_context(open_backend(inside, cluster=own))
        try:
            master = Master(backend, url=inside, storage=root, ttl=_TTL, max_attempts=1)
        except InvalidInput as error:
            yield Diagnostic("files", str(error), "see --storage")
            return
        stack.enter_context(_running(master))
        report = doctor.Report(folder / "report")
        job = _submit(backend, settings, report, timeout, known=named is not None)
        yield from _until_ended(job, report)
        _until_clean(backend)


def _storage(url: str | None, cluster: str, storage: str | Path | None) -> Path | None:
    """Return where the jobs of a cluster keep their files; None if that is not known."""
    if url is not None:
        with suppress(NoSuchCluster), open_backend(url, cluster=cluster, create=False) as backend:
            known = known_storage(backend, storage)
            return None if known is None else known.root.parent
    place = storage_place(None, storage)
    return None if place is None else place.root


@contextmanager
def _made_for_a_while(root: Path, own: str) -> Iterator[None]:
    """Remove the folder `own` in `root` afterwards, and those above it that were made for it."""
    missing = [path for path in (root, *root.parents) if not path.exists()]
    try:
        yield
    finally:
        transfer.remove(root / own)
        for path in missing:
            with suppress(OSError):  # Another process uses it by now.
                path.rmdir()


@contextmanager
def _running(master: Master) -> Iterator[None]:
    stop = threading.Event()
    thread = JrsThread(target=master.run, args=(stop,), name="doctor")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _submit(
    backend: Backend,
    settings: JobSettings | None,
    report: doctor.Report,
    timeout: float,
    *,
    known: bool,
) -> JobHandle:
    return Client(backend).submit(
        _ENTRY,
        id=_JOB,
        restart=RestartPolicy(attempts=1),
        snapshots=SnapshotPolicy(on_failed=Keep.DELETE, on_canceled=Keep.DELETE),
        timeout=TimeLimits(attempt=2 * timeout + _CHECKS),
        settings=settings,
        arguments={"report": str(report.path), "timeout": timeout, "known": known},
    )


def _until_ended(job: JobHandle, report: doctor.Report) -> Iterator[Diagnostic]:
    """Yield what the job reports, and why it has not finished if it has not."""
    told: list[Diagnostic] = []
    while True:
        result, obstacle = _result(job), _obstacle(job)
        found = report.read()
        yield from found[len(told) :]
        told = found
        if result is not None or obstacle is not None:
            break
        time.sleep(_POLL)
    if obstacle is not None:
        yield Diagnostic("start", obstacle, "install it, or correct the options")
        job.cancel(reason="it cannot start here")
    elif result is not None and result.status is not JobStatus.FINISHED and _is_fit(told):
        yield _failed(result.failure)


def _is_fit(told: list[Diagnostic]) -> bool:
    return all(one.remedy is None for one in told)


def _result(job: JobHandle) -> JobResult | None:
    entry = job.view().entry
    return None if entry is None else entry.result


def _obstacle(job: JobHandle) -> str | None:
    """Return why this host cannot start the job; None if it can."""
    attempt = job.view().attempt
    return attempt.obstacles[0].reason if attempt is not None and attempt.obstacles else None


def _failed(failure: Failure | None) -> Diagnostic:
    why = failure.message if failure else "no reason was recorded"
    words = last_words(failure.detail) if failure else ""
    return Diagnostic("session", f"{why}: {words}" if words else why, doctor.NO_SESSION)


def _until_clean(backend: Backend) -> None:
    """Wait until the files of the job are removed, as long as that is worth it."""
    results, deadline = JobResultStore(backend), Deadline.after(_ENDS)
    while not (results.has_clean(_JOB) or deadline.expired):
        time.sleep(_POLL)
