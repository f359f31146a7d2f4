"""The reasons of Spark's errors in one line, without the stacks of two languages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jrs.contract.errors import JrsError, Unavailable
from jrs.contract.texts import one_line

_ERROR = re.compile(r".*\b(\w*(?:Error|Exception)): (.*)")
"""The last error of a line: it caused those in front of it."""
_WRAPPERS = ("Py4JJavaError", "PythonException", "SparkException")
_REASON = re.compile(r"Exception|Error|Invalid|Unrecognized")
_OF_SYSTEM = (
    "(?:No space left on device|Disk quota exceeded|Too many open files|Cannot allocate memory"
    "|Stale (?:NFS )?file handle)"
)
"""What the system says of a host or a storage that fails for now, and not of a file."""
_PASSING = re.compile(
    r"[\w.]*\b(?:IOException|FSError|FileSystemException|FileNotFoundException|SocketException"
    r"|RocksDBException): (?:While [\w ]+: )?"
    rf"(?:/.*: |error=\d+, )?(?:{_OF_SYSTEM}|/.* \({_OF_SYSTEM}\))"
)
"""The whole of an error of Java about a call of the system: a longer one quotes others."""
_SINK_PASSING = re.compile(
    r"[^\n'\"]*Traceback \(most recent call last\):\n(?:  .*\n)*"
    r'  File "[^"\n]*\brecovery/spark/sink\.py", line \d+, in write\n(?:  .*\n)*'
    rf"OSError: \[Errno \d+\] (?:.* Detail: \[errno \d+\] )?{_OF_SYSTEM}"
)
"""The same of the sink of jrs, which runs in a worker of Python and calls nothing of the job's."""
_MAY_PASS = re.compile(f"{_OF_SYSTEM}|timed out", re.IGNORECASE)
"""What an error of a call of jrs's own, or of stored state, says if it may pass."""
_LOST_STATE = re.compile(
    r"\[(CANNOT_READ_STREAMING_STATE_FILE|CANNOT_LOAD_STATE_STORE"
    # These are not about stored state either: a lock, the host's memory, a place to write.
    r"(?!\.(UNRELEASED_THREAD|\w*OUT_OF_MEMORY|FAILED_TO_GET_CHANGELOG_WRITER)))"
)
# Spark's own failure, and not that of another query, which a function of this one has run.
_NOT_COMPUTED = re.compile(
    r"(\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: )?"
    r"assertion failed: CheckpointInfo length: \d+, numPartitions: \d+"
)


def why(error: BaseException) -> str:
    """Return the reason of an error of Spark in one line: the innermost, without its stack."""
    lines = [match for line in str(error).splitlines() if (match := _ERROR.search(line))]
    named = [one for one in lines if one[1] not in _WRAPPERS] or lines
    said = f"{named[0][1]}: {named[0][2]}" if named else str(error).strip().partition("\n")[0]
    return one_line(said)[:500] or type(error).__name__


def message(error: BaseException) -> str:
    """Return what an error of Spark says, without the plan of the query, which has the user's own
    words in it."""
    return str(error).partition("\n=== Streaming Query ===")[0]


def passes(error: BaseException) -> bool:
    """Return whether an error of Spark was caused by something that passes, such as a full disk.

    Only the innermost of its causes counts, and only if it is an error of a call of the system. The
    job's own code may quote any text, and a server of its own may have a full disk: an error of
    these ends the stage.
    """
    *_, last = "", *_causes(error)
    return bool(_PASSING.fullmatch(last) or _SINK_PASSING.match(last))


def _causes(error: BaseException) -> Iterator[str]:
    """Yield what each of an error's causes in the JVM is, and says, the innermost last."""
    java, cause = getattr(error, "java_exception", None), getattr(error, "_cause", None)
    while java is not None:
        yield str(java.toString())
        java = java.getCause()
    while cause is not None:
        yield cause._desc
        cause = cause._cause


def may_pass(error: BaseException) -> bool:
    """Return whether an error of a call of jrs's own, or of stored state, may pass. No text of the
    job's is in it, so that its words are enough."""
    return _MAY_PASS.search(message(error)) is not None


@contextmanager
def unavailable(
    what: str, is_passing: Callable[[BaseException], bool] = may_pass
) -> Iterator[None]:
    """Turn an error of Spark that passes into `Unavailable`.

    Args:
        what: is not possible now, for the message.
        is_passing: `passes`, unless the call is one of jrs's own.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, JrsError) or not is_passing(error):
            raise
        raise Unavailable(f"{what}: {why(error)}") from error


def not_computed(error: BaseException) -> bool:
    """Return whether a query died because its sink took a batch without having all of it computed.

    A sink does so if it was interrupted between its own commit and the query's: the batch comes
    again, and the sink has it already. But if the files of state have unique names, Spark then does
    not know which of them belong to the batch, and fails at each start (`checkpointFormatVersion` 2
    in `MicroBatchExecution.updateStateStoreCkptId`). A sink also does so if it has batches of
    another history, if a function ignores an error, or if it reads only a part of its rows: then
    the batch must not count as one that the sink has.
    """
    return _NOT_COMPUTED.match(str(error)) is not None


def lost_state(error: BaseException) -> bool:
    """Return whether a query died because its checkpoint's state cannot be loaded."""
    return _is_of_state(error) and not may_pass(error)


def is_interrupted(error: BaseException) -> bool:
    """Return whether a query died because its host, or the storage, fails for a moment: the query
    itself may be right, and its state whole."""
    return passes(error) or (_is_of_state(error) and may_pass(error))


def _is_of_state(error: BaseException) -> bool:
    return _LOST_STATE.search(message(error)) is not None


def last_words(printed: str) -> str:
    """Return the line in which a JVM that died says why; empty if there is none."""
    before = printed.partition("Traceback (most recent call last)")[0]
    named = [line for line in before.splitlines() if _REASON.search(line)]
    return named[0].strip().removeprefix('Exception in thread "main" ') if named else ""
