"""The workload of a recorded history: commits, compactions and leaderships of two handles."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import attrs

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.compaction import Compaction
from jrs.contract.errors import Unavailable
from jrs.contract.operations import EPOCH_KEY, Create, Delete, Update
from jrs.records import keys
from jrs.testing.chaos.crashes import SECTOR, complete
from jrs.testing.chaos.disk import Event, Recorder, Write
from jrs.testing.chaos.forms import begin_in_old_form, raise_form
from jrs.testing.chaos.late import late
from jrs.testing.chaos.truth import contents_of

BEGUN, ACKNOWLEDGED = "begun", "acknowledged"
_STEPS = 26
_NEAR = (511, 510, 509, 508, 0, 1, 2)
"""Positions in a sector at which the log should end, so that the next write begins there."""

Values = dict[str, bytes]
"""The map without versions."""
Commit = dict[str, bytes | None]
"""The effect of a commit: values; None for a removed key."""


@attrs.frozen
class History:
    """A recorded run: the disk's events with a note of each commit, and the commits' effects."""

    events: list[Event]
    commits: list[Commit]


def record(rng: random.Random, root: Path) -> History:
    """Run and record a workload in the empty folder `root`.

    Raises:
        RuntimeError: a write bypassed the recorder: by a child process, or by an unknown call.
    """
    with Recorder(root) as recorder:
        workload = _Workload(recorder, root, rng)
        workload.run()
    written = {path: data for path, data in complete(recorder.events).items() if data is not None}
    if written != contents_of(root):
        raise RuntimeError("the recorder missed a call: its disk is not the real one")
    return History(recorder.events, workload.commits)


class _Workload:
    def __init__(self, recorder: Recorder, root: Path, rng: random.Random) -> None:
        self.commits: list[Commit] = []
        self._recorder = recorder
        self._root = root
        self._rng = rng
        self._values: Values = {}
        self._seal_at = rng.choice((2_000, 8_000, 1 << 40))
        self._late = rng.random() < 0.5
        self._handles: list[FileBackend] = []
        self._committing: tuple[int, int] | None = None
        """The handle with a single commit under way, and the number of that commit."""
        self._overhead = 40

    def run(self) -> None:
        if self._rng.random() < 0.5:
            begin_in_old_form(self._root)
        self._handles = [self._open(), self._open()]
        self._recorder.before_sync = self._peek
        steps: list[Callable[[], None]] = [self._batch, self._compact, self._lead, self._reopen]
        raised = self._rng.choice((0, 0, _STEPS // 2, _STEPS))
        try:
            for step in range(_STEPS):
                if step == raised:
                    self._raise()
                if self._rng.random() < 0.75:
                    self._commit()
                else:
                    self._rng.choice(steps)()
        finally:
            self._recorder.before_sync = lambda: None
            for handle in self._handles:
                handle.close()

    def _open(self) -> FileBackend:
        compaction = late(self._rng) if self._late else Compaction
        return FileBackend(self._root, seal_at=self._seal_at, compaction=compaction)

    def _begin(self, commit: Commit) -> int:
        number = len(self.commits)
        self.commits.append(commit)
        self._recorder.note(BEGUN, number)
        return number

    def _done(self, number: int) -> None:
        self._recorder.note(ACKNOWLEDGED, number)
        for key, value in self.commits[number].items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    # -- steps -----------------------------------------------------------------------------

    def _commit(self) -> None:
        who = self._rng.choice((0, 0, 1))
        number = len(self.commits)
        ops = self._ops(self._handles[who], number)
        number = self._begin({op.key: None if isinstance(op, Delete) else op.value for op in ops})
        before = len(self._recorder.events)
        self._committing = who, number
        self._handles[who].commit(*ops)
        self._committing = None
        self._done(number)
        self._learn(before, sum(len(v) for v in self.commits[number].values() if v))

    def _ops(self, handle: FileBackend, number: int) -> list[Create | Update | Delete]:
        ops: list[Create | Update | Delete] = [Create(f"new/{number:04}", self._value())]
        old = sorted(key for key in self._values if key.startswith("new/"))
        if old and self._rng.random() < 0.5:
            record = handle.get(self._rng.choice(old))
            assert record is not None
            if self._rng.random() < 0.4:
                ops.append(Delete(record.key, record.version))
            else:
                ops.append(Update(record.key, b"changed by %d" % number, record.version))
        return ops

    def _value(self) -> bytes:
        """Return a value that usually lets the log end near the edge of a sector."""
        if self._rng.random() < 0.25:
            return self._rng.choice((b"", b"\n~~\n", b"\0" * 40, b"x" * 5000, b"y" * 1200))
        length = (self._rng.choice(_NEAR) - self._log_end() - self._overhead) % SECTOR
        return b"v" * length

    def _batch(self) -> None:
        """Make several commits at the same time."""
        handle = self._handles[0]
        flying = []
        for _ in range(self._rng.randint(2, 6)):
            op = Create(f"new/{len(self.commits):04}", b"b" * self._rng.choice((3, 300, 700)))
            number = self._begin({op.key: op.value})
            flying.append((number, handle.commit_async(op)))
        for number, future in flying:
            future.result(60)
            self._done(number)

    def _compact(self) -> None:
        self._rng.choice(self._handles).compact()

    def _lead(self) -> None:
        number = self._begin({})
        # Until its commit is done, it may or may not exist.
        leads = self._handles[0].campaign("m", ttl=3600.0, stop=threading.Event())
        assert leads is not None
        record = self._handles[0].get(EPOCH_KEY)
        assert record is not None
        self.commits[number] = {EPOCH_KEY: record.value}
        self._done(number)
        leads.resign()

    def _raise(self) -> None:
        """Raise the cluster's format to the newest one."""
        number = self._begin({})
        raise_form(self._handles[0])
        record = self._handles[0].get(keys.FORMAT)
        if record is not None:
            self.commits[number] = {keys.FORMAT: record.value}
        self._done(number)

    def _reopen(self) -> None:
        self._handles[1].close()
        self._handles[1] = self._open()

    # -- where the log ends, and who reads before it is synced -----------------------------

    def _log_end(self) -> int:
        for event in reversed(self._recorder.events):
            if isinstance(event, Write) and event.data is not None:
                return event.offset + len(event.data)
        return 0

    def _learn(self, before: int, size: int) -> None:
        """Measure how many bytes a commit takes besides its values."""
        written = [e for e in self._recorder.events[before:] if isinstance(e, Write) and e.data]
        if len(written) == 1 and written[0].data is not None:
            self._overhead = len(written[0].data) - size

    def _peek(self) -> None:
        """Let the other handle read unsynced data; what it has seen counts as acknowledged."""
        if self._committing is None or self._rng.random() < 0.7:
            return
        (who, number), self._committing = self._committing, None
        key = f"new/{number:04}"
        seen: list[bool] = []

        def look() -> None:
            with suppress(Unavailable):  # The committing handle compacts, too.
                seen.append(self._handles[1 - who].get(key) is not None)

        thread = threading.Thread(target=look, name="jrs-peek")
        thread.start()
        thread.join(30.0)
        if seen and seen[0]:
            self._recorder.note(ACKNOWLEDGED, number)
