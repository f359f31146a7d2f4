"""Every error of jrs, split by what the caller can do about it.

::

    JrsError
    ├── InvalidInput              the call itself is wrong; nothing was sent (also a ValueError)
    │   └── NoSuchCluster         the backend has no such cluster yet
    ├── Refused                   the call was refused; nothing was changed; do not repeat it
    │   ├── Conflict              an operation's condition did not hold; ``.op`` names it
    │   ├── Fenced                a newer epoch exists: step down, write nothing more
    │   ├── TooLarge              over a declared limit; refused before it was sent
    │   ├── AccessDenied          a server rejects the credentials, or they do not permit the call
    │   ├── NotFound              what the call names does not exist (also a LookupError)
    │   │   ├── NoSuchResult
    │   │   │   └── ResultExpired     the result was expired; only its tombstone is left
    │   │   ├── NoSuchJob
    │   │   └── NoSuchSnapshot
    │   ├── CorruptRecord         a stored record cannot be read; an operator decides
    │   │   ├── UnsupportedVersion    written by a newer jrs
    │   │   ├── DamagedSnapshot       a snapshot has changed since it was taken
    │   │   └── UnreadableCheckpoint  a checkpoint of Spark cannot be read
    │   ├── SnapshotInUse         the snapshot is still needed; it was not touched
    │   ├── WrongState            the job or the cluster is in the wrong state for the call
    │   ├── HistoryChanged        a restore took back output that was read: read it all again
    │   ├── ClusterMoved          the cluster is at another backend now; ``.url`` names it
    │   ├── FolderReplaced        the backend's folder was moved, removed or replaced: open it again
    │   ├── JobIsRunning          the call would change the job under a running attempt
    │   ├── ResultExists          another result of this job is durable already
    │   ├── ResultIsDirty         the job's resources are not cleaned up yet
    │   ├── DuplicateJob          the job id is taken; ``.state`` says by what
    │   ├── JobHeld               the job cannot resume from the stored data; an operator decides
    │   ├── CannotStartHere       this host lacks what the job needs; another host may have it
    │   ├── Canceled              the application was canceled: its main has to end
    │   └── WrongProcess          the handle was opened before a fork: open another in the child
    ├── Unavailable               nothing was changed; retry later
    │   ├── HandleClosed          the client or backend was closed here: open another one
    │   ├── WrongAddress          no server answers there: correct the URL or the certificates
    │   └── StorageRefused        the storage refuses it: credentials, permissions, bucket or clock
    ├── OutcomeUnknown            the write may or may not have happened: read back, then decide
    ├── JobNotFinished            a job ended FAILED or CANCELED; ``.result`` has the failure
    └── StageDied                 a streaming stage died, and may not be started again
"""

from __future__ import annotations

from typing import Any, Self

from jrs.contract.operations import Op


class JrsError(Exception):
    """The base class of every error that jrs raises on purpose. It can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by its constructor, whose arguments may be others than those of an Exception. A
        # process pool whose worker raises what cannot be read hangs.
        return self._again, self.args, self.__dict__

    @classmethod
    def _again(cls, *args: object) -> Self:
        return cls.__new__(cls, *args)


class InvalidInput(JrsError, ValueError):
    """The call itself is wrong. Nothing was sent and nothing was changed."""


class NoSuchCluster(InvalidInput):
    """The backend has no such cluster yet, and the call may not create it.

    `obstacle` says why this process could not create the cluster either; empty if no reason is
    known.
    """

    def __init__(self, message: str, *, obstacle: str = "") -> None:
        self.obstacle = obstacle
        super().__init__(message)


class Refused(JrsError):
    """The call was refused. Nothing was changed."""


class Conflict(Refused):
    """The condition of one operation did not hold, so no operation of the commit was applied."""

    def __init__(self, op: Op, detail: str) -> None:
        self.op = op
        super().__init__(f"{type(op).__name__} of {op.key!r} refused: {detail}")


class Fenced(Refused):
    """A newer epoch exists, so this leader's write was refused. The leader must step down."""


class TooLarge(Refused):
    """The call is over a limit that the backend or the store declares. Nothing was sent."""


class AccessDenied(Refused):
    """The server rejects these credentials, or they do not permit the call."""


class NotFound(Refused, LookupError):
    """The named object does not exist."""


class NoSuchResult(NotFound):
    """The job has no result, dirty or clean."""


class ResultExpired(NoSuchResult):
    """The result was expired or deleted. Its tombstone still keeps the job from running again."""


class NoSuchJob(NotFound):
    """The cluster has no job with that id."""


class NoSuchSnapshot(NotFound):
    """The catalogue has no such snapshot of the job."""


class CorruptRecord(Refused):
    """Stored bytes cannot be read. jrs keeps them for an operator and never guesses."""


class UnsupportedVersion(CorruptRecord):
    """A newer version of jrs wrote the record or the folder."""


class DamagedSnapshot(CorruptRecord):
    """A snapshot's files or its manifest have changed since it was taken.

    `problems` has one line for each missing, changed or unexpected file.
    """

    def __init__(self, what: str, problems: tuple[str, ...]) -> None:
        self.problems = problems
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{what} is damaged: {problems[0]}{more}")


class SnapshotInUse(Refused):
    """The job would resume from the snapshot, or a reader has it open. It was not touched. After a
    restore that claims it, the message says if the new job is held."""


class WrongState(Refused):
    """The job or the cluster is not in a state that permits the call, or has just left it. Check
    its state, then decide."""


class HistoryChanged(Refused):
    """A restore has taken back output of a stage since the reader got its cursor. Read the output
    from its beginning."""


class ClusterMoved(Refused):
    """The cluster was moved to another backend, with all its records. Nothing was changed here.

    `url` names the other backend, without secrets; empty if it could not be read.
    """

    def __init__(self, message: str, url: str = "") -> None:
        self.url = url
        super().__init__(message)


class FolderReplaced(Refused):
    """The folder of the backend was moved, removed or replaced, for example by a copy, while the
    handle was open. Nothing was changed. The handle works again only if its folder is moved back:
    open another one."""


class JobIsRunning(Refused):
    """The call would change the job's state under a running attempt. Suspend the job first."""


class ResultExists(Refused):
    """Another result of this job is already durable; the first one wins.

    `state` is ``"dirty"``, ``"clean"`` or ``"expired"``.
    """

    def __init__(self, job_id: str, state: str) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(
            f"job {job_id!r} already has a result ({state}); the first durable result wins"
        )


class ResultIsDirty(Refused):
    """The result is dirty: it cannot be deleted before the job's resources are cleaned up."""


class DuplicateJob(Refused):
    """The job id is taken.

    `state` is ``"submitted"`` while the job has no result, else ``"dirty"``, ``"clean"`` or
    ``"expired"``.
    """

    def __init__(self, job_id: str, state: str) -> None:
        self.job_id = job_id
        self.state = state
        says = {
            "submitted": "was submitted already and has not ended",
            "dirty": "has ended already (its cleanup is under way)",
            "clean": "has ended already",
            "expired": "has ended and its result was expired",
        }[state]
        super().__init__(f"job {job_id!r} {says}; choose another job id to run it again")


class JobHeld(Refused):
    """The job cannot resume from the stored data, and starting over would be a guess. Its attempt
    ends without a result; `jrs resume` tries again."""


class CannotStartHere(Refused):
    """This host lacks something that the job needs to start: a module, Java, an interpreter.

    The job does not end. It is held with the reason, and starts on a host that has what it
    needs."""


class Canceled(Refused):
    """The application was canceled: its result is durable, and its `main` has to end. Do not
    catch this error."""


class WrongProcess(Refused):
    """The handle was opened before a fork, and this is the child. It never works here: open another
    one."""


class Unavailable(JrsError):
    """The backend did not answer in time. Nothing was changed; retry later."""


class HandleClosed(Unavailable):
    """The client or the backend was closed in this process before the call. Waiting does not help:
    open another one."""

    def __init__(self, message: str = "this handle is closed: open another one") -> None:
        super().__init__(message)


class WrongAddress(Unavailable):
    """No server can be reached under this URL or with these certificates. Waiting does not help:
    correct the URL, the certificates or the name resolution."""


class StorageRefused(Unavailable):
    """The storage of objects refuses the call: the credentials are wrong or lack a permission, the
    bucket does not exist, or the clock of this host is wrong. Correct that, then repeat the call.
    """


class OutcomeUnknown(JrsError):
    """The write may or may not have happened. Read the record back before you decide; do not just
    repeat the call."""


class StageDied(JrsError):
    """A streaming stage died, and its restart policy allows no further start."""


for _name, _kind in list(globals().items()):
    if isinstance(_kind, type) and issubclass(_kind, JrsError):
        _kind.__module__ = "jrs"  # Tracebacks show the name that a user imports.
