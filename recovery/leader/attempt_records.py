"""AttemptRecords: the stored attempts of one leader's jobs: their numbers, deaths and probation.

Each method blocks, so the dispatcher calls it in a pool. No method keeps anything that must outlive
this leader in memory: it is committed under the fence.
"""

from __future__ import annotations

import os
import socket

import attrs

from jrs.contract.errors import Conflict, CorruptRecord, Fenced
from jrs.contract.operations import Absent, Check, Fence, Op, Record, create_or_update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, decode_once, encode
from jrs.records.history import HistoryKind
from jrs.records.model import (
    AttemptRecord,
    Failure,
    JobSpec,
    RunnerKind,
    StopMode,
    StopRecord,
    StopState,
)
from jrs.records.obstacles import Obstacle
from jrs.store import attempt_fence, restores
from jrs.store.history_texts import (
    attempt_died,
    attempt_interrupted,
    attempt_left,
    attempt_started,
)
from jrs.store.masters import Registry
from jrs.store.stops import JobStops

from ..attempt.code_version import code_version_of
from ..attempt.own_attempt import about_attempt, earlier_attempts, keeps_number
from ..attempt.runners import AttemptExit
from ..processes import last_words, left_running
from ..processes.last_words import LeaderEnd
from ..rules import used_time
from ..rules.decision import Stop
from ..rules.events import EventKind
from . import progress, suspects
from .context import LeaderContext
from .restart_plan import EndCount, RestartPlan

_AGAIN, _LONGEST = 1.0, 30.0
"""Seconds until an attempt that did not die is tried again, at first and at most: twice as long
each time in a row."""
RETRY = 30.0
"""Seconds until a master tries again to start a job, if its host lacks what the job needs."""


class AttemptRecords:
    """The stored attempts of one leader's jobs."""

    def __init__(self, context: LeaderContext) -> None:
        self._context = context
        self._backend = context.backend
        self._fence = context.fence
        self._emit = context.emit
        self._now = context.runtime.now
        self._hanging = 0.0 if context.ttl is None else context.ttl * suspects.LAST_WORDS
        self._hangs_since: dict[int, float] = {}
        self._stops = JobStops(context.backend, now=self._now, historian=context.historian)
        self._decisions, self._historian = context.decisions, context.historian
        self._leaders = last_words.folder_of(context.storage.root)

    def newest(self, job_id: str) -> tuple[AttemptRecord | None, int | None]:
        """Return the job's newest attempt, if it can be read, and its record's version."""
        record = self._backend.get(keys.ATTEMPTS + job_id)
        if record is None:
            return None, None
        try:
            return decode(AttemptRecord, record.value, record.key), record.version
        except CorruptRecord:
            return None, record.version  # It is only a counter; starting it again does no harm.

    def begin(self, spec: JobSpec) -> tuple[AttemptRecord, Fence] | None:
        """Record the job's next attempt and let it in; return it and its fence, or None if the job
        has changed since it was decided, or the cluster is paused."""
        job_id = spec.job_id
        guards = self._as_decided(spec)
        if guards is None:
            return None
        before, version = self.newest(job_id)
        kind = suspects.runner_of(spec, before.suspicion if before else 0)
        runner = self._context.runners[kind]
        reserved = runner.reserve(spec, before)
        begun = None
        try:
            begun = self._begin(spec, before, version, kind, reserved, guards)
        finally:
            if begun is None and reserved is not None:
                runner.release(reserved)
        return begun

    def _begin(
        self,
        spec: JobSpec,
        before: AttemptRecord | None,
        version: int | None,
        kind: RunnerKind,
        reserved: str | None,
        guards: list[Op],
    ) -> tuple[AttemptRecord, Fence] | None:
        job_id = spec.job_id
        # What could not be started was no attempt: its number is used again.
        counted = before is not None and keeps_number(before)
        earlier, left_out = earlier_attempts(before)
        record = AttemptRecord(
            job_id=job_id,
            attempt=before.attempt + counted if before else 1,
            epoch=self._fence.epoch,
            master=self._context.master,
            started_at=self._now(),
            deaths=before.deaths if before else 0,
            failure=before.failure if before else None,
            first_started_at=self._first_start(before),
            suspicion=before.suspicion if before else 0,
            on_probation=before is not None and suspects.is_on_probation(spec, before.suspicion),
            unheard=before.unheard if before else (),
            used=used_time.used(before, spec.timeout, self._now()),
            counted_at=self._now(),
            mark=reserved or self._context.runtime.token(),
            earlier_marks=left_running.marks_after(before),
            obstacles=self._obstacles_elsewhere(before),
            host=socket.gethostname(),
            pid=os.getpid() if kind is RunnerKind.THREAD else 0,
            in_thread=kind is RunnerKind.THREAD,
            earlier=earlier,
            earlier_left_out=left_out,
            session=before.session if before else None,
            # In a process of its own, the attempt records what it finds there.
            code=code_version_of(spec.entry_point) if kind is RunnerKind.THREAD else "",
        )
        name = attempt_fence.name_of(record.epoch, record.attempt, record.mark)
        let_in = attempt_fence.let_in_ops(self._backend, job_id, name)
        key, said = keys.ATTEMPTS + job_id, attempt_started(record.attempt, _left(before, record))
        about = {"host": record.host, "runner": kind.value}
        try:
            with self._decisions.recorded(job_id, HistoryKind.ATTEMPT, said, about=about) as event:
                self._put(key, encode(record), version, *guards, *let_in, *event)
        except Conflict:
            return None
        if not let_in:
            return record, self._fence
        fence = attempt_fence.of_attempt(self._backend, job_id, name, self._fence)
        return None if fence is None else (record, fence)

    def count_death(
        self,
        spec: JobSpec,
        ended: AttemptExit,
        count: EndCount,
        *,
        ran: float,
        interruptions: int = 0,
    ) -> RestartPlan | None:
        """Count the attempt of a job without a result that has ended; return None if no attempt has
        to follow.

        The count is durable, so failovers do not reset the restart policy. An attempt that was
        interrupted, or could not begin, through no fault of the job is not counted.

        Args:
            count: that of this end, the same one if the call is repeated: a commit whose outcome
                was unknown has perhaps counted it.
            ran: the seconds that it ran.
            interruptions: how many attempts in a row before this one were not counted.
        """
        job_id = spec.job_id
        if ended.lapsed:
            return None  # Its leadership failed it: the leader has yet to notice.
        if self._backend.get(keys.CANCEL + job_id) is not None:
            return None
        stop = self._stops.get(job_id)
        if stop is not None and stop.state in (StopState.QUIESCED, StopState.DONE):
            # It ended because the job has to stop, or is held.
            self.end(job_id, "held" if stop.mode is StopMode.HOLD else "suspended")
            return None
        if ended.fenced and not self._backend.is_current(self._fence):
            raise Fenced(f"the attempt of {job_id!r} was fenced: {ended.message}")
        if ended.interrupted or not ended.begun:
            return self._interrupted(spec, ended, count, interruptions + 1)
        before, version = self.newest(job_id)
        before = before or AttemptRecord(job_id)
        if ended.cannot_start and before.could_not_start:
            why = before.obstacles[-1].reason
            self._emit(EventKind.WAITING, job_id, f"it cannot be started on this host: {why}")
            used = used_time.used(before, spec.timeout, self._now())
            return RestartPlan(before.deaths, RETRY, used=used, obstacles=before.obstacles)
        record = before
        if not count.has_landed(before):
            deaths = self._deaths_after(before, spec, ran)
            kind = used_time.TIMEOUT if ended.timed_out else "exit"
            failure = Failure(kind, ended.message, ended.detail, ended.exit_status)
            used, delay = self._used_at_end(before, spec, ended), spec.restart.delay_after(deaths)
            record = attrs.evolve(before, deaths=deaths, failure=failure, used=used)
            record = count.tried(record, ended.message, self._now(), delay)
            self._put_end(record, version, count, HistoryKind.DIED, ended)
        deaths, final = record.deaths, used_time.is_final(record, spec)
        left, delay = spec.restart.attempts - deaths, spec.restart.delay_after(deaths)
        said = f"{left} left, next in {delay:g} s" if left > 0 and not final else "none left"
        self._emit(EventKind.DIED, job_id, f"{attempt_died(record.attempt, ended.message)}; {said}")
        return RestartPlan(deaths, delay, used=record.used, timed_out=final)

    def _interrupted(
        self, spec: JobSpec, ended: AttemptExit, count: EndCount, times: int
    ) -> RestartPlan:
        """Record the end of an attempt that has not died; return when the next one may start."""
        found, version = self.newest(spec.job_id)
        record = found or AttemptRecord(spec.job_id)
        delay = min(_LONGEST, _AGAIN * 2.0 ** min(times - 1, 16))
        if not count.has_landed(record):
            used = used_time.used(record, spec.timeout, self._now())
            record = attrs.evolve(record, used=used)
            # With a delay: its leader's death is not its own from now on.
            record = count.tried(record, ended.message, self._now(), delay)
            self._put_end(record, version, count, HistoryKind.INTERRUPTED, ended)
        said = f"not counted as a death; trying again in {delay:g} s"
        self._emit(EventKind.WAITING, spec.job_id, f"{ended.message}; {said}")
        return RestartPlan(record.deaths, delay, used=record.used, interruptions=times)

    def _put_end(
        self,
        record: AttemptRecord,
        version: int | None,
        count: EndCount,
        kind: HistoryKind,
        ended: AttemptExit,
    ) -> None:
        said, about = attempt_interrupted, {"host": record.host, **about_attempt(record)}
        if kind is HistoryKind.DIED:
            said, about = attempt_died, {**about, "exit_status": ended.exit_status}
        text, again = said(record.attempt, ended.message), count.is_repeated
        with self._historian.recorded(
            record.job_id, kind, text, about=about, repeatable=again
        ) as event:
            self._put(keys.ATTEMPTS + record.job_id, encode(record), version, *event)

    def end(
        self, job_id: str, how: str, *, at: float | None = None, only_unstarted: bool = False
    ) -> None:
        """Record how, and when, the job's newest attempt has ended; no death is counted."""
        record, version = self.newest(job_id)
        if record is not None and not record.ended_at:
            if only_unstarted and not record.could_not_start:
                return
            record = attrs.evolve(record, ended_at=at or self._now(), ended=how)
            self._put(keys.ATTEMPTS + job_id, encode(record), version)

    def count_leader_death(
        self, spec: JobSpec, stored: Record | None
    ) -> tuple[AttemptRecord | None, float]:
        """Return the job's newest attempt, and the seconds until another attempt may start.

        An attempt that ran in an earlier leader's process is counted by how that leader ended. The
        outcome is recorded durably, so that the next leader does not repeat it.

        Raises:
            OSError: the leader's last words cannot be read now.
            LeaderHangs: the last words may still come.
            Fenced, Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
        """
        job_id, policy = spec.job_id, spec.restart
        try:
            record = decode(AttemptRecord, stored.value, stored.key) if stored else None
        except CorruptRecord:
            record = None  # It is only a counter; starting it again does no harm.
        if record is None or stored is None:
            return None, 0.0
        is_old = record.epoch < self._fence.epoch
        if is_old and not record.could_not_start and suspects.ran_in_its_leader(record, spec):
            stop = self._stops.get(job_id)
            stopped = stop is not None and stop.state is StopState.DONE

            def end_of(epoch: int) -> LeaderEnd:
                if stopped:
                    return LeaderEnd(orderly=True)  # It was suspended before.
                return last_words.read(self._leaders, epoch, job_id)

            if suspects.hangs_alone(record, end_of(record.epoch)):
                self._wait_for_last_words(job_id, record.epoch)
            before, record = (
                record,
                suspects.after_leader_death(record, policy, end_of, self._now()),
            )
            if record != before:
                why = end_of(record.epoch).fatal or "it left no last words"
                said = f"the leader of epoch {record.epoch} died while it ran there: {why}"
                if record.deaths > before.deaths:
                    said += f"; it ran alone, so this is its death ({record.deaths} so far)"
                about = about_attempt(record)
                with self._historian.recorded(job_id, HistoryKind.DIED, said, about=about) as event:
                    self._put(stored.key, encode(record), stored.version, *event)
                self._emit(EventKind.SUSPECT, job_id, said)
        return record, suspects.remaining_delay(record, policy, self._now())

    def count_time(self, spec: JobSpec, *, ended_at: float | None = None) -> None:
        """Bring the time that the job has run up to date, for a leader that comes after this one.

        Args:
            ended_at: when the last attempt ended, if none runs any more.
        """
        record, version = self.newest(spec.job_id)
        if record is None or record.epoch != self._fence.epoch or not record.counted_at:
            return
        now = ended_at or self._now()
        used = used_time.used(record, spec.timeout, now)
        record = attrs.evolve(record, used=used, counted_at=0.0 if ended_at else now)
        self._put(keys.ATTEMPTS + spec.job_id, encode(record), version)

    def end_probation(self, job_id: str) -> None:
        """Record that the job survived its probation: its leader's death is no longer its own."""
        record, version = self.newest(job_id)
        if record is not None and record.on_probation and record.epoch == self._fence.epoch:
            record = attrs.evolve(record, on_probation=False)
            self._put(keys.ATTEMPTS + job_id, encode(record), version)

    # -- inside ----------------------------------------------------------------------------

    def _first_start(self, before: AttemptRecord | None) -> float:
        if before is None or (before.attempt == 1 and not keeps_number(before)):
            return self._now()
        return before.first_started_at

    def _obstacles_elsewhere(self, before: AttemptRecord | None) -> tuple[Obstacle, ...]:
        """Return the obstacles of the other masters that still run."""
        if before is None or not before.obstacles:
            return ()
        running = {info.name for info in Registry(self._backend, now=self._now).running()}
        others = running - {self._context.master}
        return tuple(one for one in before.obstacles if one.master in others)

    def _deaths_after(self, before: AttemptRecord, spec: JobSpec, ran: float) -> int:
        """Return how many deaths count with that of the newest attempt."""
        got_on = (before.deaths > 0 and spec.restart.is_long(ran)) and progress.got_on(
            self._backend, self._context.storage, before, self._fence.epoch
        )
        return spec.restart.deaths_after(before.deaths, ran, got_on=got_on)

    def _used_at_end(self, before: AttemptRecord, spec: JobSpec, ended: AttemptExit) -> float:
        used = used_time.used(before, spec.timeout, self._now())
        # A restart after a time-out gives the job its whole time again.
        spent = ended.used_up or used >= (spec.timeout.job or float("inf"))
        return 0.0 if ended.timed_out and spent else used

    def _wait_for_last_words(self, job_id: str, epoch: int) -> None:
        """Raise `LeaderHangs`, unless that leader has hung for too long already."""
        now = self._context.runtime.clock()
        if epoch not in self._hangs_since:
            self._hangs_since[epoch] = now
            said = f"it ran alone in the leader of epoch {epoch}, whose process hangs"
            self._emit(EventKind.SUSPECT, job_id, said)
        if now < self._hangs_since[epoch] + self._hanging:
            raise suspects.LeaderHangs(f"the process of the leader of epoch {epoch} hangs")

    def _as_decided(self, spec: JobSpec) -> list[Op] | None:
        """Return the conditions that the job is unchanged, has no result and may run; None if it
        has changed.

        Raises:
            JobHeld: this master does not run the job.
        """
        key, stop_key = keys.JOBS + spec.job_id, keys.STOPS + spec.job_id
        stored, stop = self._backend.get(key), self._backend.get(stop_key)
        if stored is None or restores.took_place_of(stored):
            return None
        # Not by its version: this leader's own restore changes that, too.
        if decode_once(JobSpec, stored.value, key) != spec:
            return None
        self._context.trust.check(spec, stored.value)
        if stop is None:
            unchanged: Op = Absent(stop_key)
        elif Stop.of(decode(StopRecord, stop.value, stop.key)) is Stop.NONE:
            unchanged = Check(stop_key, stop.version)
        else:
            return None
        # An earlier attempt may have recorded its job's result until it was shut out.
        names = [prefix + spec.job_id for prefix in (keys.RESULTS, keys.TOMBSTONES, keys.CANCEL)]
        free = restores.none_of(spec.job_id)
        return [Check(key, stored.version), unchanged, *map(Absent, [keys.PAUSE, *names]), free]

    def _put(self, key: str, value: bytes, version: int | None, *guards: Op) -> None:
        """Commit a record under the fence; an unknown outcome is read back."""
        op = create_or_update(key, value, version)
        commit_and_read_back(self._backend, op, *guards, fence=self._fence)


def _left(before: AttemptRecord | None, record: AttemptRecord) -> str:
    """Return what became of the attempt before a new one, if its leader has not recorded it."""
    if before is None or before.ended_at or not record.attempt > before.attempt:
        return ""
    return attempt_left(before.attempt, before.epoch) if before.epoch < record.epoch else ""
