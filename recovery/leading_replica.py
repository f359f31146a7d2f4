"""One replica of an application: what it does with `main` and its result while it leads."""

from __future__ import annotations

import functools
import getpass
import inspect
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    Canceled,
    CorruptRecord,
    Fenced,
    InvalidInput,
    JrsError,
    OutcomeUnknown,
    ResultExpired,
    Unavailable,
)
from jrs.contract.leadership import Leadership
from jrs.contract.texts import error_text, one_line, printable, span
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.checks import check_json
from jrs.records.model import JobResult, JobResultEntry, JobStatus, Json, ResultState
from jrs.records.not_finished import JobNotFinished
from jrs.store import applications, main_records
from jrs.store.result_store import JobResultStore

from .attempt.code_version import code_version
from .attempt.entry_point import check_plain, name_of
from .attempt.job_log import printed
from .attempt.run import record_result, until_answered
from .attempt.triage import is_of_jrs, leaves
from .cleanup.remaining import Remaining
from .rules.events import Event, EventKind, Report, notify

_OWN = ("jrs.recovery.application.Driver.",)
"""What of jrs a main calls while it runs; see `is_of_jrs`."""

_QUIET = 2.0
"""Seconds for which a replica waits for a cleanup without a word."""

log = printed("jrs.application", logging.Formatter("jrs: %(message)s"))
"""Says when a stored result is returned and nothing runs, and what the end is waiting for."""


_LEADERSHIPS = (Fenced, Unavailable, OutcomeUnknown)
"""The errors that end a leadership, after which the master campaigns again."""


class RaisedByMain(Exception):
    """Main has raised such an error of its own, as of another cluster: not for the master."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(error_text(error))


def identity_of(
    main: Callable[..., Any], name: str, arguments: Mapping[str, Json]
) -> ApplicationRecord:
    """Return what an application runs, as its record says it.

    Raises:
        InvalidInput: `main` cannot be called with a driver and the arguments, or these are no JSON;
            or it is no plain function, or a partial with arguments of its own.
        TooLarge: the arguments are too large to be kept.
    """
    if isinstance(main, functools.partial) and (main.args or main.keywords):
        raise InvalidInput(
            "main is a functools.partial with arguments of its own, which its name does not tell "
            "apart: give them by jrs.run(…, arguments=…)"
        )
    check_plain(main, "main")
    record = ApplicationRecord(
        name,
        name_of(main),
        dict(arguments),
        started_by=f"{_user()}@{socket.gethostname()}",
        host=socket.gethostname(),
        pid=os.getpid(),
    )
    try:
        inspect.signature(main).bind("driver", **record.arguments)
    except TypeError as error:
        call = ", ".join(["driver", *record.arguments])
        raise InvalidInput(f"main cannot be called as main({call}): {error}") from None
    except ValueError:
        pass  # Some builtins have no signature.
    return record


class Replica:
    """One replica of an application.

    Args:
        identity: what it runs.
        code: the version of its code.
        report: called with every event.
    """

    def __init__(
        self, backend: Backend, identity: ApplicationRecord, code: str, report: Report
    ) -> None:
        self._backend = backend
        self._identity = identity
        self._name = identity.name
        self._code = code
        self._report = report
        self._results = JobResultStore(backend)

    def check(self) -> None:
        """Check that the name stands for nothing else; see `lead` for the rest.

        Raises:
            InvalidInput: it stands for another main, other arguments, or a job.
        """
        entry = self._results.get(self._name)
        if entry is None:
            applications.check_call(self._identity, self._backend)
        elif entry.result is not None:
            self._check_result(entry.result)

    def lead(self, main: Callable[[], Any], master: str, leadership: Leadership) -> Json:
        """Run `main`, unless the application has ended, and return the application's result.

        Raises:
            JobNotFinished: the application was canceled, or a job of that name failed.
            ResultExpired: the application ended, and its result was expired.
            Fenced: this leader was replaced.
            RaisedByMain: `main` raised `Fenced`, `Unavailable` or `OutcomeUnknown` of its own.
            Whatever else `main` raises; its record says so.
        """
        self._wait_if_canceled(leadership)
        entry = self._results.get(self._name)
        if entry is None:
            self._run(main, master, leadership)
            entry = until_answered(leadership.lost)(self._results.get, self._name)
            assert entry is not None, "it was just recorded"
        else:
            self._say_handed_back(entry)
        _finish_cleanup(self._backend, self._name, leadership)
        return _payload(entry)

    def hand_back(self) -> Json:
        """Return the stored result; raises as `lead`."""
        entry = until_answered(threading.Event())(self._results.get, self._name)
        assert entry is not None, "the campaign has ended because of it"
        self._say_handed_back(entry)
        return _payload(entry)

    def _run(self, main: Callable[[], Any], master: str, leadership: Leadership) -> None:
        """Run `main` and record its result; if the application was canceled, it has one."""
        now, fence = time.time(), leadership.fence
        wanted = attrs.evolve(
            self._identity, master=master, epoch=fence.epoch, started_at=now, begun_at=now
        )
        try:
            record = main_records.begin(self._backend, wanted, fence) or wanted
        except Canceled:
            return
        self._emit(EventKind.ATTEMPT, str(record), fence.epoch)
        try:
            payload = check_json(main(), "what main returned")
            self._record(payload, record, leadership)
        except (Exception, SystemExit) as error:
            own = self._of_leadership(error, leadership)
            if own is not None:
                raise own from None
            if self._has_result():
                return  # It was canceled: what main raises now is a consequence.
            said = one_line(error_text(error))
            self._emit(EventKind.DIED, f"main raised {said}; another replica tries", fence.epoch)
            with suppress(JrsError):  # What main raised matters more.
                main_records.raised(self._backend, self._name, said, fence, at=time.time())
            if isinstance(error, _LEADERSHIPS):
                raise RaisedByMain(error) from error
            raise

    def _record(self, payload: Json, record: ApplicationRecord, leadership: Leadership) -> None:
        """Make the application's result durable, however long the backend is away, until the
        leadership is lost: otherwise main would run once more from its beginning."""
        finished_at, answered = time.time(), until_answered(leadership.lost)
        result = JobResult(
            self._name,
            JobStatus.FINISHED,
            payload,
            attempt=record.attempts,
            epoch=leadership.epoch,
            started_at=record.started_at,
            finished_at=finished_at,
            call=record.call,
            code=self._code,
            main=answered(self._newest, record),
        )

        def commit() -> None:
            with main_records.finished(self._backend, record) as also:
                record_result(self._backend, result, leadership.fence, leadership.lost, also=also)

        answered(commit)

    def _of_leadership(self, raised: BaseException, leadership: Leadership) -> BaseException | None:
        """Return the error by which main was ended by its leadership or by a call of jrs's own;
        None if there is none. What main raises itself counts as its exception, also an error of
        another cluster."""
        for error, inside in leaves(raised):
            if isinstance(error, _LEADERSHIPS) and (
                leadership.lost.is_set()
                or is_of_jrs(error, inside, _OWN)
                or self._is_replaced_or_away(leadership)
            ):
                return error
        return None

    def _is_replaced_or_away(self, leadership: Leadership) -> bool:
        try:
            return not self._backend.is_current(leadership.fence)
        except JrsError:
            return True  # No replica can record it now: main begins again after the outage.

    def _wait_if_canceled(self, leadership: Leadership) -> None:
        """Let this leader carry out a cancel that was requested before `main` begins."""
        while self._backend.get(keys.CANCEL + self._name) is not None:
            if leadership.lost.is_set():
                raise Fenced(f"epoch {leadership.epoch} was replaced: this replica stops here")
            if self._results.has_entry(self._name):
                return
            leadership.lost.wait(0.02)

    def _newest(self, record: ApplicationRecord) -> ApplicationRecord:
        with suppress(CorruptRecord):
            return applications.of_name(self._backend, self._name) or record
        return record

    def _has_result(self) -> bool:
        with suppress(JrsError):
            return self._results.has_entry(self._name)
        return False

    def _check_result(self, result: JobResult) -> None:
        if result.status is JobStatus.FINISHED and result.call not in ("", self._identity.call):
            ran = result.main.entry_point if result.main else "a job"
            raise InvalidInput(
                f"{self._name!r} has ended already, and was {ran} with arguments of its own, not "
                f"{self._identity.entry_point} with these: a name stands for one run; choose "
                'another, as name=f"nightly-{date}"'
            )

    def _say_handed_back(self, entry: JobResultEntry) -> None:
        result = readable(entry)
        self._check_result(result)
        ago = span(time.time() - result.finished_at)
        log.warning(
            "application %r has ended %s ago; its result is returned, main does not run",
            self._name,
            ago,
        )
        if result.code and self._code and result.code != self._code:
            log.warning(
                "the result of application %r is of code %s, and the code here is %s: give the run "
                "another name to run this code",
                self._name,
                printable(result.code),
                self._code,
            )

    def _emit(self, kind: EventKind, message: str, epoch: int) -> None:
        notify(self._report, Event(kind, self._name, message, epoch, time.time()))


def readable(entry: JobResultEntry) -> JobResult:
    """Return the result of an entry.

    Raises:
        ResultExpired: it was expired.
        CorruptRecord: it cannot be read.
    """
    if entry.state is ResultState.EXPIRED:
        raise ResultExpired(f"job {entry.job_id!r} has ended and its result was expired")
    if entry.result is None:
        raise CorruptRecord(entry.problem or f"the result of {entry.job_id!r} cannot be read")
    return entry.result


def _payload(entry: JobResultEntry) -> Json:
    result = readable(entry)
    if result.status is not JobStatus.FINISHED:
        raise JobNotFinished(result)
    return result.payload


def _finish_cleanup(backend: Backend, name: str, leadership: Leadership) -> None:
    """Wait until the application's jobs have ended and nothing is dirty, as far as waiting helps:
    there may be no next leader. Say what for, if that takes a while."""
    remaining, quiet, said = Remaining(backend, name, of_others=True), Deadline.after(_QUIET), False
    while not leadership.lost.is_set() and (job_id := remaining.first()) is not None:
        if quiet.expired and not said:
            said = True
            log.warning(
                "application %r has ended; its leader stays for the end and the cleanup of job "
                "%r, for at most a minute",
                name,
                job_id,
            )
        leadership.lost.wait(0.02)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())  # It has no name in this container.


def code_of(main: Callable[..., Any]) -> str:
    """Return the version of the code of `main`."""
    return code_version(getattr(main, "func", main))
