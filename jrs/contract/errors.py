"""Every error of jrs, split by what the caller can do about it.

::

    JrsError
    ├── InvalidInput              the call itself is wrong; nothing was sent (also a ValueError)
    ├── Refused                   a definite no; nothing was changed; repeating it will not help
    │   ├── Conflict              an operation's condition did not hold; ``.op`` names it
    │   ├── Fenced                a newer epoch exists: step down, touch nothing more
    │   ├── TooLarge              over a declared limit; refused before it was sent
    │   ├── AccessDenied          a server does not take these credentials, or not for that
    │   ├── NotFound              (also a LookupError)
    │   │   ├── NoSuchResult
    │   │   ├── NoSuchJob
    │   │   └── NoSuchSnapshot
    │   ├── CorruptRecord         what is stored cannot be read; held, never guessed
    │   │   ├── UnsupportedVersion    written by a newer jrs
    │   │   └── DamagedSnapshot       a snapshot that is not what it was when it was taken
    │   ├── SnapshotInUse         something still needs the snapshot; it was not touched
    │   ├── JobIsRunning          the job would be changed under a running attempt
    │   ├── ResultExists          another result of this job is durable already
    │   ├── ResultIsDirty         the job's resources are not cleaned up yet
    │   ├── ResultExpired         the result was expired; only its tombstone is left
    │   ├── DuplicateJob          the job id is taken; ``.state`` says by what
    │   └── JobHeld               it cannot go on from what is stored; an operator decides
    ├── Unavailable               nothing was changed; retry later
    │   └── WrongAddress          first mend the URL or the certificates: nobody is there to answer
    ├── OutcomeUnknown            it may or may not have happened: read back, then decide
    └── JobNotFinished            a job ended FAILED or CANCELED; ``.result`` holds what happened
"""

from __future__ import annotations

from jrs.contract.operations import Op


class JrsError(Exception):
    """The root of every error jrs raises on purpose."""


class InvalidInput(JrsError, ValueError):
    """The call itself is wrong. Nothing was sent and nothing was changed."""


class Refused(JrsError):
    """A definite no. Nothing was changed."""


class Conflict(Refused):
    """The condition of one operation did not hold, so none of the commit was applied."""

    def __init__(self, op: Op, detail: str) -> None:
        self.op = op
        super().__init__(f"{type(op).__name__} of {op.key!r} refused: {detail}")


class Fenced(Refused):
    """A newer epoch exists, so this leader's write was refused. It must step down."""


class TooLarge(Refused):
    """Over a limit that the backend or the store declares. Nothing was sent."""


class AccessDenied(Refused):
    """The server does not take these credentials, or they do not permit what was asked for."""


class NotFound(Refused, LookupError):
    """What was named does not exist."""


class NoSuchResult(NotFound):
    """The job has no result, dirty or clean."""


class NoSuchJob(NotFound):
    """The cluster knows no job of that id."""


class NoSuchSnapshot(NotFound):
    """The catalogue has no such snapshot of the job."""


class CorruptRecord(Refused):
    """Stored bytes that cannot be read. They are held for an operator and never guessed at."""


class UnsupportedVersion(CorruptRecord):
    """A record or a folder written by a newer version of jrs than this one."""


class DamagedSnapshot(CorruptRecord):
    """A snapshot's files or its manifest are not what they were when it was taken.

    `problems` has one line for each file that is missing, changed or too many.
    """

    def __init__(self, what: str, problems: tuple[str, ...]) -> None:
        self.problems = problems
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{what} is damaged: {problems[0]}{more}")


class SnapshotInUse(Refused):
    """The snapshot is what its job would go on from, or is being read. It was not touched."""


class JobIsRunning(Refused):
    """The job has to be suspended first: its state would be changed under a running attempt."""


class ResultExists(Refused):
    """Another result of this job is durable already; the first one wins.

    `state` is ``"dirty"``, ``"clean"`` or ``"expired"``.
    """

    def __init__(self, job_id: str, state: str) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(
            f"job {job_id!r} already has a result ({state}); the first durable result wins"
        )


class ResultIsDirty(Refused):
    """A dirty result cannot be deleted: resources of its job are still to be cleaned up."""


class ResultExpired(Refused):
    """The result was expired or deleted. Its tombstone still keeps the job from running again."""


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
            "expired": "ended and its result was expired",
        }[state]
        super().__init__(f"job {job_id!r} {says}; choose another job id to run it again")


class JobHeld(Refused):
    """The job cannot go on from what is stored, and to start over would be a guess. Its attempt
    ends without a result; `jrs resume` tries again."""


class Unavailable(JrsError):
    """The backend could not be asked in time. Nothing was changed; retry later."""


class WrongAddress(Unavailable):
    """No server can be spoken to under this URL, or not with these certificates. To wait for one is
    in vain: the URL, the certificates or the network's names have to be mended."""


class OutcomeUnknown(JrsError):
    """The write may or may not have happened. Read back before deciding; never just repeat."""


for _name, _kind in list(globals().items()):
    if isinstance(_kind, type) and issubclass(_kind, JrsError):
        _kind.__module__ = "jrs"  # Tracebacks show the name that a user imports.
