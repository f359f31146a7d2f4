"""JobHandle: one job of a cluster, and what is done with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jrs.client import waiting
from jrs.client.connection import Connection, entry_point_of
from jrs.client.job_requests import JobRequests
from jrs.client.logs import JobLogs, LogPart
from jrs.client.snapshots import JobSnapshots
from jrs.contract.errors import NoSuchJob
from jrs.records.checks import check_moment, check_stage_name, merged
from jrs.records.model import (
    JobResult,
    JobSpec,
    JobStatus,
    StageSummary,
)
from jrs.records.snapshots import SnapshotRecord
from jrs.recovery.attempt.entry_check import check_entry
from jrs.recovery.attempt.entry_point import check_guarded, importing
from jrs.recovery.files.transfer import Progress, silent
from jrs.recovery.inspect.explain import Explanation, explain
from jrs.recovery.inspect.history import HistoryEntry, PastDecision, decision_of_then, history
from jrs.recovery.inspect.output_files import OutputFiles, output_files
from jrs.recovery.snapshots.retry import RetryRequest, retry
from jrs.store import streams
from jrs.store.job_views import JobView
from jrs.store.streams import StreamStatus


def _check_entry(spec: JobSpec) -> None:
    check_entry(spec.entry_point, spec.arguments)


class JobHandle(JobRequests):
    """One job of a cluster. Made by `Client.submit` and `Client.job`.

    Attributes:
        id: of the job.
        snapshots: its snapshots.
    """

    def __init__(self, connection: Connection, id: str) -> None:
        self.id = id
        self.snapshots = JobSnapshots(connection, id)
        self._connection = connection

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    # -- reading -----------------------------------------------------------------------------

    def view(self) -> JobView:
        """Return everything the cluster knows of the job.

        Raises:
            NoSuchJob: it knows nothing of it.
        """
        return self._connection.jobs.view(self.id)

    def status(self) -> JobStatus | None:
        """Return the job's status; None if it is unknown, because a record of the job cannot be
        read.

        Raises:
            NoSuchJob: the cluster knows nothing of the job.
        """
        return self.view().status

    def result(
        self,
        timeout: float | None = None,
        *,
        allow_missing: bool = False,
        notify: Callable[[Explanation], None] | None = None,
    ) -> JobResult:
        """Wait for the job's result and return it, whatever its status.

        It is returned as soon as it is durable; cleanup may still run.

        Args:
            timeout: seconds; None waits forever.
            allow_missing: whether a job that was not submitted yet is waited for, too.
            notify: called with what happens to the job, within a few seconds of each change: for
                example that no master leads. A new place in the queue is not reported.

        Raises:
            TimeoutError: not within `timeout`.
            NoSuchJob: the cluster knows nothing of the job.
            ResultExpired: the result was expired.
            InvalidInput: `timeout` is not a number; or the job has not ended, and its own module,
                which an attempt imports, calls this at its top level.
            CorruptRecord: the result cannot be read.

        Example::

            result = client.job("nightly-2026-11-20").result(timeout=3600)
            if result.status is not jrs.JobStatus.FINISHED:
                raise jrs.JobNotFinished(result)
        """
        if not allow_missing:
            self.view()
        self._check_waits_for_another()
        if notify is None:
            return self._connection.results.wait(self.id, timeout)
        return waiting.for_result(self._connection, self.id, timeout, notify)

    def _check_waits_for_another(self) -> None:
        """Raise `InvalidInput` if the module of the job, which has no result yet, is what this
        thread imports: the attempt of the job would wait for itself."""
        if importing() and self._connection.results.get(self.id) is None:
            with suppress(NoSuchJob):
                if (spec := self.view().spec) is not None:
                    check_guarded("result", spec.entry_point)

    def wait_stage(self, name: str, timeout: float | None = None) -> StageSummary:
        """Wait until a stage of the job has finished; return its attempt, epoch and duration.

        Args:
            timeout: seconds; None waits forever.

        Raises:
            TimeoutError: not within `timeout`.
            NoSuchJob: the cluster knows nothing of the job.
            WrongState: the job has ended without the stage; or its result, which had the stages,
                was expired.
            InvalidInput: `timeout` is not a number.
            CorruptRecord: the stage's record, or the result, cannot be read.

        Example::

            job.wait_stage("ingest", timeout=600)
        """
        self.view()
        return waiting.for_stage(self._connection, self.id, check_stage_name(name), timeout)

    def streams(self) -> tuple[StreamStatus, ...]:
        """Return how the streams of the job do, as their newest batches have recorded it: rows and
        rates, the watermark, the state, and how far they are behind their sources.

        Spark reports a batch only when the batch is done. So the record of a batch has the report
        of an earlier batch, with its number. If the job does not run, the values are those recorded
        last, until the job is cleaned up. Finished stages are left out. Empty if the job is
        unknown.

        Raises:
            Unavailable: the backend did not answer.

        Example::

            for stream in client.job("live").streams():
                print(stream.stage, stream.batch, stream.progress and stream.progress.rows)
        """
        return streams.of_job(self._connection.backend, self.id)

    def explain(self) -> Explanation:
        """Return what a leader does with the job now, and why.

        Raises:
            NoSuchJob: the cluster knows nothing of the job.
        """
        return explain(self._connection.backend, self.view())

    def explain_past(self, *, at: float | None = None, epoch: int | None = None) -> PastDecision:
        """Return the newest decision about the job that its history has.

        Args:
            at: up to this moment, in seconds since 1970; None: until now.
            epoch: of the leader of this epoch; None: of any leader.

        Raises:
            InvalidInput: `at` is not a number of seconds since 1970.
            NoSuchJob: the cluster knows nothing of the job.
            NotFound: the history has no such decision.

        Example::

            print(job.explain_past(at=time.time() - 3600))
        """
        check_moment(at, "at")
        return decision_of_then(self._connection.backend, self.view(), at, epoch)

    def history(self, after: str = "") -> tuple[HistoryEntry, ...]:
        """Return what happened to the job, in the order in which it was committed.

        What changes a job records an event in the same commit: who did it, when, and what a
        leader had decided, with the facts. The history is kept until the result is expired; of a
        job with very many events the newest are. Before the first event come entries that other
        records tell, for jobs of older versions of jrs. The times are of several hosts' clocks.

        Args:
            after: the `id` of an entry: only what was committed after it. So a program that keeps
                the id of the last entry that it has handled gets each entry once.

        Raises:
            NoSuchJob: the cluster knows nothing of the job.
            NotFound: the history has no entry `after`, or not all that followed it any more.

        Example::

            for entry in job.history():
                print(time.ctime(entry.at), entry.by, entry.kind, entry.text)
        """
        return history(self._connection.backend, self.view(), after)

    def follow_history(
        self, after: str = "", timeout: float | None = None
    ) -> Iterator[HistoryEntry]:
        """Yield the entries of `history` as they are committed, until the job is cleaned up.

        Args:
            after: as in `history`.

        Raises:
            TimeoutError: the job is not cleaned up within `timeout` seconds.
            And the errors of `history`.

        Example::

            for entry in job.follow_history():
                print(entry.by, entry.kind, entry.text)
        """
        return waiting.for_history(self._connection, self.id, after, timeout)

    def logs(
        self,
        *,
        attempt: int | None = None,
        stream: str | None = None,
        tail: int | None = None,
        follow: bool = False,
        heartbeats: bool = False,
    ) -> Iterator[LogPart]:
        """Yield what the job's attempts in processes of their own have printed.

        Logs are files in the storage, and are kept after the job's end for as long as the masters'
        `RetentionPolicy` says. jrs keeps the beginning and the end of a long log; a line says where
        a part is left out.

        Args:
            attempt: the number of an attempt; None: the newest, and when following, later ones.
            stream: ``"out"`` or ``"err"``; None: both, as they are found.
            tail: begin with this number of last lines of each stream, with 64 KiB for each of them
                at most: a longer line is cut to its end, and fewer lines come if many are longer.
            follow: wait for more until the job has ended.
            heartbeats: when following, yield an empty part whenever nothing is new, twice a second:
                so a caller that has nobody to print it for can stop.

        Raises:
            NoSuchJob: the cluster knows nothing of the job.
            NotFound: no logs are here; the message says where they may be.
            InvalidInput: no storage is known, or an argument is wrong.

        Example::

            for part in client.job("nightly-2026-11-20").logs(stream="err", tail=20):
                sys.stderr.buffer.write(part.data)
        """
        logs = JobLogs(self._connection, self.id)
        return logs.read(attempt, stream, tail, follow=follow, heartbeats=heartbeats)

    def log_folder(self) -> Path | None:
        """Return the folder of the job's logs; None if the storage is unknown or has none."""
        return JobLogs(self._connection, self.id).folder()

    def files(self, stage: str, since: str = "") -> OutputFiles:
        """Return the files of a stage's output that count, or those that are new since an earlier
        call.

        Of a stream that writes to the sink of jrs, these are the files of its committed batches; of
        another stage all files, once it has finished. A folder alone does not show that: a batch
        may appear while it is listed, and a restore takes batches back. Hidden files, whose names
        begin with ``.`` or ``_``, are left out. The files stay where they are until the job's owner
        deletes them, or the job is restored.

        Args:
            stage: its name. A stage that has not begun has no files.
            since: the cursor of an earlier call: then only the files of later batches are returned.

        Raises:
            NoSuchJob: the cluster knows nothing of the job.
            NotFound: the job has ended without such a stage, or the output was removed since.
            HistoryChanged: the job was restored since the cursor. What it names may have been taken
                back: read from the beginning.
            InvalidInput: no cursor, or no name of a stage; or no storage is known.
            ResultExpired: a cursor was given, and the job's result was expired.
            WrongState: the job is being restored; a fork has not begun to run; the stage is
                temporary, was published elsewhere, or is written by Spark's own file sink, whose
                log only Spark reads; or the cluster's format is older than 6, and a cursor was
                given.
            CorruptRecord: it cannot be told which batches count.
            Unavailable: the backend does not answer, or the output changes all the time.

        Example::

            cursor = ""
            while True:
                new = client.job("live").files("words", since=cursor)
                for path in new.paths:
                    load(path)
                cursor = new.cursor  # Store it with what was loaded.
        """
        return output_files(
            self._connection.backend,
            self._connection.storage(),
            self.id,
            stage,
            since,
        )

    # -- making another job of it -------------------------------------------------------------

    def retry(
        self,
        as_id: str | None = None,
        *,
        from_stage: str = "",
        entry: str | Callable[..., Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        changed: Mapping[str, Any] | None = None,
        check: bool = False,
        timeout: float = 60.0,
        progress: Progress = silent,
        skipped: Callable[[SnapshotRecord, str], None] = lambda record, why: None,
    ) -> JobHandle:
        """Run a job that FAILED or was CANCELED again, as a new job; return a handle on that.

        The new job takes over the stages that have finished, with their output, and the newest
        state of the streams; what has not finished runs again, with the code as it is now. This job
        keeps its result. Durable; the leader starts the new job. If the same retry is under way
        already, its handle is returned, and one that was interrupted is completed: repeat the call
        after any error.

        Args:
            as_id: the id of the new job; by default the next that is free of JOB.2, JOB.3, …
            from_stage: a stage to run again, with all that come after it. Streams among them start
                from their beginning. With it, a job that has FINISHED can be retried, too.
            entry: other code; as in `Client.submit`.
            arguments: other arguments in place of all that there were.
            changed: single arguments that are different.
            check: import the entry point here first, as `check_entry` does.
            timeout: seconds to wait for this job's cleanup, which keeps what is taken over.
            progress: called with the number of files that are done, and the number of all files.
            skipped: called for each damaged snapshot for which an older one is taken, with the
                reason.

        Raises:
            NoSuchJob: the cluster knows nothing of the job.
            WrongState: the job has not ended, or has FINISHED; its cleanup kept no snapshot, or is
                not complete; another retry of it is under way; files of an earlier job of the id
                `as_id` exist; or the cluster's format is older than 5.
            DuplicateJob: the id `as_id` is taken.
            SnapshotInUse: a claim of the snapshot of its end is not complete; or another process
                restores the same retry for longer than the timeout.
            InvalidInput: no such stage has finished, an argument is not JSON, only the job's
                application can run it, or no storage is known.
            Unavailable: the disk is full, or the backend does not answer.

        Example::

            again = client.job("nightly-2026-11-20").retry()
            print(again.id, again.result(timeout=3600).status)
        """
        request = RetryRequest(
            as_job=as_id,
            from_stage=from_stage,
            entry_point=None if entry is None else entry_point_of(entry),
            arguments=None if arguments is None else merged(arguments, {}),
            changed=merged(changed, {}),
            check=_check_entry if check else lambda spec: None,
            timeout=timeout,
            progress=progress,
            skipped=skipped,
        )
        new_id = retry(self._connection.snapshots_to_change(), self.id, request)
        return JobHandle(self._connection, new_id)
