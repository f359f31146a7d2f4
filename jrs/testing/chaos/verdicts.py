"""Opens a damaged store, asks for records, and compares the answers with the truth.

An answer is right if it is the truth or a refusal (a `JrsError`). If the newest bytes of a log are
missing, nobody can know whether they were ever written: answers that are all true for one earlier
moment are counted separately, if the log looks as after a crash.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import attrs

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.base import UNREADABLE
from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, JrsError, Unavailable
from jrs.contract.operations import Create, Record
from jrs.records.codec import decode
from jrs.records.model import EpochRecord, JobResult, JobSpec, Tombstone
from jrs.testing.chaos.late import late
from jrs.testing.chaos.operators import SECTOR, Damage
from jrs.testing.chaos.questions import FOLDERS, FRESH, Question, Refusal, questions
from jrs.testing.chaos.truth import CLUSTER, Role, State, Truth

CPU_LIMIT = 3.0
"""Seconds of computing after which a case counts as an endless loop."""
WALL_LIMIT = 60.0
"""Seconds after which a case counts as waiting forever."""

_KINDS: dict[str, type] = {"jobs": JobSpec, "results": JobResult, "tombstones": Tombstone,
                           "leader": EpochRecord}  # fmt: skip
"""The stored type of each folder whose values have a checksum."""


class Hang(BaseException):
    """A case has used up its time. Not an `Exception`, so that no code under test swallows it."""


@attrs.define
class Verdict:
    """The outcome for one damaged store.

    Attributes:
        lookups: the number of questions.
        held: the number of refused questions.
        opened: whether the store could be opened.
        omitted: pages without damaged records, or with values that are refused when they are read,
            on a store whose damage is reported.
        wrong: answers that are not true.
        hangs, raw, silent: endless loops; exceptions other than `JrsError`; departures from the
            truth that `Backend.check` does not report.
        overreach: a few damaged bytes outside of the log held everything.
        newest_tail: the newest commits are missing, which looks like a crash.
    """

    lookups: int = 0
    held: int = 0
    omitted: int = 0
    opened: bool = False
    newest_tail: bool = False
    wrong: list[str] = attrs.field(factory=list)
    hangs: list[str] = attrs.field(factory=list)
    raw: list[str] = attrs.field(factory=list)
    silent: list[str] = attrs.field(factory=list)
    overreach: list[str] = attrs.field(factory=list)

    @property
    def bad(self) -> dict[str, list[str]]:
        """Return the counts that must be 0, by kind."""
        kinds = ("wrong", "hangs", "raw", "silent", "overreach")
        return {kind: found for kind in kinds if (found := getattr(self, kind))}


def evaluate(root: Path, truth: Truth, damage: Damage, rng: random.Random) -> Verdict:
    """Open the store at `root`, which is `truth` with `damage`, and evaluate its answers.

    Must run in the main thread of a process that needs neither SIGALRM nor SIGPROF.
    """
    verdict = Verdict()
    try:
        with _limited():
            _Case(root, truth, damage, rng, verdict).run()
    except Hang as hang:
        verdict.hangs.append(str(hang))
    except Exception as error:
        verdict.raw.append(_shown(error))
    return verdict


# -- inside --------------------------------------------------------------------------------


class _Case:
    def __init__(
        self, root: Path, truth: Truth, damage: Damage, rng: random.Random, verdict: Verdict
    ) -> None:
        self._root = root
        self._truth = truth
        self._damage = damage
        self._rng = rng
        self._verdict = verdict
        self._answers: list[tuple[Question, Any]] = []
        self._refusals: list[str] = []
        self._asked_of_known = self._held_of_known = 0

    def run(self) -> None:
        verdict = self._verdict
        try:
            backend = self._open()
        except JrsError as error:
            # A refusal with a message is neither wrong nor silent.
            self._overreach(f"opening: {error}")
            return
        verdict.opened = True
        try:
            named = self._look(backend)
        finally:
            backend.close()
        self._settle(named)

    def _open(self) -> FileBackend:
        compaction = late(self._rng)  # Not a child process for each of some thousand small stores.
        create = self._rng.random() < 0.5
        return FileBackend(self._root, CLUSTER, create=create, compaction=compaction)

    def _look(self, backend: Backend) -> list[str]:
        """Ask, commit, and ask again with another handle; return the report of `check`."""
        named: list[str] = []
        first = self._rng.random() < 0.3
        if first:
            named += self._check(backend)
        for question in questions(self._rng, self._truth):
            self._put(backend, question)
        fresh = Create(f"{self._rng.choice(FOLDERS)}{self._rng.randrange(999):03}{FRESH}", b"\n")
        committed = self._commit(backend, fresh)
        try:
            with self._open() as other:
                if committed:
                    self._must_be(other, fresh)
                for question in questions(self._rng, self._truth, few=True):
                    self._put(other, question)
                named += self._check(other)
        except JrsError as error:
            named.append(str(error))
        if self._damage.path.split("/")[-2:-1] == ["leader"]:
            self._lead()
        if not first:
            named += self._check(backend)
        return named

    def _put(self, backend: Backend, question: Question) -> None:
        verdict = self._verdict
        verdict.lookups += 1
        known = question.answer(self._truth.records) is not None
        self._asked_of_known += known
        try:
            self._answers.append((question, question.ask(backend)))
        except (JrsError, Refusal) as error:
            verdict.held += 1
            self._held_of_known += known
            self._refusals.append(f"{question.text}: {error}")
        except Exception as error:
            verdict.raw.append(f"{question.text}: {_shown(error)}")

    def _commit(self, backend: Backend, fresh: Create) -> bool:
        """Commit a record that is not part of the truth; return whether it was acknowledged."""
        self._verdict.lookups += 1
        try:
            backend.commit(fresh)
        except JrsError as error:
            self._verdict.held += 1
            self._refusals.append(f"commit: {error}")
            return False
        except Exception as error:
            self._verdict.raw.append(f"commit: {_shown(error)}")
            return False
        return True

    def _must_be(self, backend: Backend, fresh: Create) -> None:
        """A commit that was acknowledged on a damaged store must exist for others, too."""
        self._verdict.lookups += 1
        found = backend.get(fresh.key)
        if found is None or found.value != fresh.value:
            self._verdict.wrong.append(f"{fresh.key}, just committed, is {_record_shown(found)}")

    def _lead(self) -> None:
        """A damaged lock file must not prevent a candidate from leading."""
        self._verdict.lookups += 1
        stop = threading.Event()
        timer = threading.Timer(WALL_LIMIT / 2, stop.set)
        timer.start()
        try:
            with self._open() as backend:
                led = backend.campaign("next", ttl=0.2, stop=stop)
                if led is None:
                    self._verdict.hangs.append("campaign: no master can lead")
                else:
                    led.resign()
        except JrsError as error:
            self._refusals.append(f"campaign: {error}")
        finally:
            timer.cancel()
            timer.join()

    def _check(self, backend: Backend) -> list[str]:
        """Return what `jrs fsck` would report: it checks and reads everything."""
        try:
            named = list(backend.check())
            if not named:
                for _ in backend.scan(""):
                    pass
            return named
        except Unavailable:
            return []  # This asks to try again later, and reports no damage.
        except JrsError as error:
            return [str(error)]
        except Exception as error:
            self._verdict.raw.append(f"check: {_shown(error)}")
            return []

    # -- the judgement -------------------------------------------------------------------

    def _settle(self, named: list[str]) -> None:
        departures = _departures(self._answers, self._truth.records)
        if departures and self._looks_like_a_crash() and self._is_earlier():
            self._verdict.newest_tail = True
            departures = []
        for departure in departures:
            if departure.omits and named:
                self._verdict.omitted += 1
            else:
                self._verdict.wrong.append(str(departure))
        if not named:
            self._verdict.silent += [*map(str, departures), *self._refusals][:3]
        if self._asked_of_known and self._held_of_known == self._asked_of_known:
            self._overreach(self._refusals[0])

    def _overreach(self, why: str) -> None:
        """Record an overreach: a few damaged bytes outside of the log hold everything."""
        damage, data = self._damage, self._damage.data
        whole = self._truth.files[damage.path]
        if self._truth.roles[damage.path] is not Role.OTHER or data is None:
            return
        small = damage.operator in ("flip", "flip-last", "overwrite", "zero")
        if small and len(whole) > 40_000:
            self._verdict.overreach.append(why)

    def _is_log(self) -> bool:
        return self._truth.roles[self._damage.path] is Role.LOG

    def _looks_like_a_crash(self) -> bool:
        """Return whether the log looks as if its newest bytes never reached the disk."""
        data = self._damage.data
        if not self._is_log() or data is None:
            return False
        whole = self._truth.files[self._damage.path]
        same = _same(data, whole)
        if not data[same:].strip(b"\0"):
            return True  # Cut off, or only zeros from there on.
        zeros_end = len(data) - len(data[same:].lstrip(b"\0"))
        if len(data) == len(whole) and zeros_end > self._truth.synced and not zeros_end % SECTOR:
            return True  # Whole sectors of zeros, and behind them only a part of the newest write.
        if same < self._truth.synced // SECTOR * SECTOR or len(data) > len(whole):
            return False
        # The newest write may have reached the disk in parts.
        return all(now in (0, then) for now, then in zip(data[same:], whole[same:], strict=False))

    def _is_earlier(self) -> bool:
        """Return whether all answers are true for one earlier moment."""
        return any(
            all(question.answer(state) == answer for question, answer in self._answers)
            for state in reversed(self._truth.states[:-1])
        )


def _same(left: bytes, right: bytes) -> int:
    """Return the length of the common beginning of two files."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[:middle] == right[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@attrs.frozen
class _Departure:
    """An answer that is not the truth.

    Attributes:
        omits: it is a page that omits records, or has values that are refused when they are read,
            and is otherwise right.
    """

    text: str
    omits: bool

    def __str__(self) -> str:
        return self.text


def _departures(answers: list[tuple[Question, Any]], state: State) -> list[_Departure]:
    found = []
    for question, answer in answers:
        expected = question.answer(state)
        if answer != expected:
            text = f"{question.text} is {_answer_shown(answer)}, not {_answer_shown(expected)}"
            found.append(_Departure(text, isinstance(answer, list) and _omits(answer, state)))
    return found


def _omits(page: list[Record], state: State) -> bool:
    names = [record.key for record in page]
    in_order = names == sorted(set(names))
    return in_order and all(
        state.get(record.key) == record or _is_refused(record) for record in page
    )


def _is_refused(record: Record) -> bool:
    """Return whether decoding the record's value reports the damage."""
    kind = _KINDS.get(record.key.partition("/")[0])
    if record.value == UNREADABLE:
        return True
    try:
        if record.value.startswith(b"{"):
            json.loads(record.value)
        if kind is not None:
            decode(kind, record.value, record.key)
    except (ValueError, CorruptRecord):
        return True
    return False


@contextmanager
def _limited() -> Iterator[None]:
    """End the block with `Hang` when its time is up."""

    def computing(number: int, frame: FrameType | None) -> None:
        raise Hang(f"{CPU_LIMIT:g} s of computing without an answer, {_at(frame)}")

    def waiting(number: int, frame: FrameType | None) -> None:
        raise Hang(f"no answer after {WALL_LIMIT:g} s, {_at(frame)}")

    signal.signal(signal.SIGPROF, computing)
    signal.signal(signal.SIGALRM, waiting)
    # Repeatedly: a finalizer may swallow the first one.
    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT, 1.0)
    signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT, 10.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _at(frame: FrameType | None) -> str:
    return f"in {frame.f_code.co_qualname}" if frame else ""


def _shown(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" in {frame.tb_frame.f_code.co_qualname}" if frame else ""
    return f"{type(error).__name__}: {error}{where}"


def _record_shown(record: Record | None) -> str:
    return "absent" if record is None else f"{record.value[:40]!r} at {record.version}"


def _answer_shown(answer: object) -> str:
    if answer is None or isinstance(answer, Record):
        return _record_shown(answer)
    if isinstance(answer, list):
        return f"{len(answer)} records, {zlib.crc32(repr(answer).encode()):08x}"
    return repr(answer)
