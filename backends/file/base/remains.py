"""The remains of a damaged block: its sound lines, and the held keys between them."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.operations import Record

from ..format.lines import checked
from .entries import Held
from .record_lines import check_of, held_line, record_in, salvaged


class Remains:
    """What is left of one damaged block whose line checksums were recorded at writing.

    A line is sound if its checksum is one of the recorded ones. Where such a line is missing, the
    keys between its neighbours are held.

    Args:
        block: the bytes of the block.
        checks: the recorded checksum of each line of the block, in order.
        first: the first key that may be in the block.
        following: the first key of the next block.
    """

    def __init__(self, block: bytes, checks: list[bytes], first: bytes, following: bytes) -> None:
        self.lines: dict[bytes, bytes] = {}
        """The sound lines by key, in order, without their newlines."""
        self._held: list[tuple[bytes, bytes]] = []
        """Ranges of held keys: the first key, and the key after the range."""
        self._damaged: dict[bytes, Record] = {}
        """The readable parts of other lines, by key."""
        found: dict[bytes, tuple[bytes, bytes]] = {}
        for line in block.split(b"\n"):
            body = checked(line)
            if body is not None and body.count(b"\t") >= 2:
                found[check_of(line)] = body.split(b"\t", 2)[1], line
            elif (readable := salvaged(line)) is not None:
                self._damaged[readable.key.encode()] = readable
        low, missing = first, False
        for check in checks:
            if check in found:
                key, line = found[check]
                if missing:
                    self._held.append((low, key))
                low, missing = key + b"!", False  # "!" is below every byte of a key.
                self.lines[key] = line
            else:
                missing = True
        if missing:
            self._held.append((low, following))

    def cover(self, key: bytes) -> bool:
        """Return whether a missing line may have had this key."""
        return any(low <= key < high for low, high in self._held)

    def entries(self) -> Iterator[Record | Held]:
        """Yield the sound records and the held ranges in order."""
        parts: list[tuple[bytes, Record | Held | None]] = [
            (key, record_in(line)) for key, line in self.lines.items()
        ]
        for low, high in self._held:
            readable = sorted(key for key in self._damaged if low <= key < high)
            records = tuple(self._damaged[key] for key in readable)
            parts.append((low, Held(low.decode(), high.decode(), records)))
        yield from filter(None, (part for _, part in sorted(parts, key=lambda part: part[0])))

    def all(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield the lines like `Run.lines`."""
        parts: list[tuple[bytes, bytes | None, bytes]] = [
            (low, None, held_line(low)) for low, _ in self._held
        ]
        parts += [(key, key, line + b"\n") for key, line in self.lines.items()]
        for _, key, line in sorted(parts, key=lambda part: part[0]):
            yield key, line
