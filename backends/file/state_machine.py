"""The replicated state: decides by replay whether each commit is accepted, and applies it.

A commit's line states its conditions. Every process evaluates them in the order of the log and
reaches the same verdict. A commit whose conditions depend on damaged data cannot be evaluated: the
keys that it writes are held.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jrs.contract.errors import CorruptRecord, OutcomeUnknown, UnsupportedVersion
from jrs.contract.operations import EPOCH_KEY

from ..shared.group_commit import ACCEPTED, FENCED
from ..shared.ordered_map import OrderedMap
from .base.overlay import UNKNOWN, Layer, Overlay, Stored
from .format import lines

_REMEMBERED = 4096


class StateMachine:
    """The state of one segment.

    Args:
        below: the layer below the segment.
        log: the path of its log, for messages.
        start: the offset of its log in the whole log.
        accepted: returns whether an operator has accepted the damage at a byte of the log.
        on_change: called with every key that changes.
    """

    def __init__(
        self,
        below: Layer,
        log: Path,
        start: int,
        accepted: Callable[[int], bool],
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        self.changes: OrderedMap[Stored] = OrderedMap()
        self.undecided: dict[int, str] = {}
        """The commits that cannot be evaluated: the offset of each line, and the keys it writes."""
        self.on_change = on_change
        self._log = log
        self._start = start
        self._accepted = accepted
        self._found: dict[str, int | None] = {}
        self._good_fence: bytes | None = None
        """The current fence, until the epoch is written again; nearly every commit carries it."""
        self.lie_on(below)

    def lie_on(self, below: Layer) -> None:
        """Put the changes on another layer."""
        self._below = below
        self.overlay = Overlay(below, self.changes, self._log)
        self._found.clear()

    def why_hidden(self, keys: list[str]) -> CorruptRecord | None:
        """Return why a commit with these keys could not be evaluated; None if it can be.

        Appending a commit that depends on damaged data would only hold more keys.
        """
        in_tail = self.changes.get
        try:
            for key in keys:
                stored = in_tail(key)
                if stored is not None:
                    self.overlay.check_known(key, stored)
                elif key not in self._found:
                    self._version_below(key)
        except CorruptRecord as error:
            return error
        return None

    def commit(self, body: bytes, version: int, at: int) -> int | Exception:
        """Apply a commit, unless an operator has decided to discard it; return the verdict."""
        verdict = self._verdict(body, version)
        if isinstance(verdict, OutcomeUnknown) and not self._accepted(at):
            self._hold(body, at)
        return verdict

    def _verdict(self, body: bytes, version: int) -> int | Exception:
        try:
            return self._apply(body, version)
        except UnsupportedVersion:
            raise
        except CorruptRecord as error:
            if self._is_refused(body):
                return 0  # A known condition fails, so the hidden ones make no difference.
            return OutcomeUnknown(f"written, but cannot be evaluated: {error}")

    def _is_refused(self, body: bytes) -> bool:
        """Return whether a condition of the commit fails that does not depend on damage."""
        fence, *conditions = lines.conditions(body)
        for key, wanted in (fence, *conditions) if fence[0] else conditions:
            try:
                found = self._version_of(key)
            except CorruptRecord:
                continue
            if (found is None) != (wanted is None) or (wanted not in (None, lines.ANY, found)):
                return True
        return False

    def _hold(self, body: bytes, at: int) -> None:
        """Hold every key that the commit writes: whether it was accepted is unknown."""
        written = lines.written(body)
        for key in written:
            self.changes.set(key, UNKNOWN)
            if key == EPOCH_KEY:
                self._good_fence = None
            if self.on_change is not None:
                self.on_change(key)
        if written and len(self.undecided) < _REMEMBERED:
            self.undecided[at] = ", ".join(written)

    def _apply(self, body: bytes, version: int) -> int:
        """Evaluate one commit and apply it if every condition holds; return the verdict."""
        fields = body.split(b"\t")
        if fields[0] == b"R":
            self._write([(fields[1].decode(), fields[2])], version)
            return ACCEPTED
        if fields[0] != b"C":
            raise self._newer("line", version)
        fence = fields[1]
        if fence != b"-" and fence != self._good_fence:
            name, _, wanted = fence.decode().rpartition(":")
            if self._version_of(name) != int(wanted):
                return FENCED
            if name == EPOCH_KEY:
                self._good_fence = fence
        in_tail = self.changes.get
        writes: list[tuple[str, bytes | None]] = []
        index, i, end = 0, 2, len(fields)
        while i < end:
            field = fields[i]
            kind, key_text = field[0], field[1:].decode()
            stored = in_tail(key_text)
            if stored is None:
                found = self._version_below(key_text) if self._below.answers else None
            elif stored[0] is not None:
                found = stored[1]
            else:
                self.overlay.check_known(key_text, stored)
                found = None
            if kind == 43:  # + create
                if found is not None:
                    return index
                writes.append((key_text, fields[i + 1]))
                i += 2
            elif kind == 45:  # - delete
                if found is None or (fields[i + 1] != b"-" and found != int(fields[i + 1])):
                    return index
                writes.append((key_text, None))
                i += 2
            elif kind == 61:  # = update
                if found is None or found != int(fields[i + 1]):
                    return index
                writes.append((key_text, fields[i + 2]))
                i += 3
            elif kind == 63:  # ? check
                if found is None or found != int(fields[i + 1]):
                    return index
                i += 2
            elif kind == 33:  # ! absent
                if found is not None:
                    return index
                i += 1
            else:
                raise self._newer("operation", version)
            index += 1
        self._write(writes, version)
        return ACCEPTED

    def _write(self, writes: list[tuple[str, bytes | None]], version: int) -> None:
        tail, on_change = self.changes, self.on_change
        for key_text, value in writes:
            if value is None and not self._may_be_in_base(key_text):
                tail.discard(key_text)
            else:
                tail.set(key_text, (value, version))
            if key_text == EPOCH_KEY:
                self._good_fence = None
            if on_change is not None:
                on_change(key_text)

    def _newer(self, what: str, version: int) -> UnsupportedVersion:
        return UnsupportedVersion(
            f"{self._log}: an unknown kind of {what} at byte {version - self._start}: "
            "written by a newer jrs; upgrade this one"
        )

    def _version_of(self, key: str) -> int | None:
        stored = self.changes.get(key)
        if stored is None:
            return self._version_below(key)
        if stored[0] is None:
            self.overlay.check_known(key, stored)
            return None
        return stored[1]

    def _version_below(self, key: str) -> int | None:
        if not self._below.answers:
            return None
        if key in self._found:
            return self._found[key]
        record = self._below.get(key)
        if len(self._found) >= _REMEMBERED:
            self._found.clear()
        found = self._found[key] = None if record is None else record.version
        return found

    def _may_be_in_base(self, key: str) -> bool:
        """Return whether a deletion must be recorded, because the layer below may have the key."""
        try:
            return self._version_below(key) is not None
        except CorruptRecord:
            return True
