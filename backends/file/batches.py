"""The batches of a log in format 3: what a writer appends at once, and what shows if any is lost.

::

    <crc> L 3 <start> <identity> <run> …          the first line of the log, and of its header file
    ~~<crc> B <bytes> <digest> <offset> <chain> <mark>   the head of a batch
    <crc> C …  or  <crc> S                        its lines, as in `jrs.backends.file.lines`

`bytes` and `digest` (CRC-32) are of the lines that follow, so a batch is whole or it is nothing.
The checksum of a line begins with the batch's mark and the line's number in it: what is left of a
torn batch is told from a line that belongs elsewhere.
Writers append without a lock, and so without knowing what is in front of them by then. But each
says how far it had read: at `offset` (in the whole log) the `chain` of all heads up to there was
this one. So every batch vouches for all that its writer had read. Whatever was removed, doubled,
swapped or zeroed in front of that does not fit, and is told from what a crash leaves:

- what no later batch vouches for may be what a crash leaves, if it is the beginning of a batch, cut
  short, or has zeros from one sector's edge to another; then it was never acknowledged, or it is
  the newest and nobody can tell;
- everything else that fits no checksum was damaged.

Each batch has a mark of its own, by chance: one that is there twice was doubled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from .lines import MARK, checked

_CHUNK = 4 << 20
_SECTOR = 512
_ZEROS = re.compile(rb"\0+")
_MARKS = re.compile(rb"~+")
_BEGUN_HEAD = re.compile(rb"[0-9a-f]{0,8}|[0-9a-f]{8}\t(B(\t[0-9a-f]*){0,5})?")
"""What a head that was cut off begins with, behind its `MARK`."""
_REMEMBERED = 4096
"""Batches that are remembered: one that vouches for an older one is believed as it is."""


def batch(bodies: Sequence[bytes], offset: int, chain: int) -> bytes:
    """Return a batch of lines with these bodies, by a writer that has read up to `offset`."""
    mark = int.from_bytes(os.urandom(4), "big")
    lines = b"".join(
        [
            b"%08x\t%s\n" % (crc32(body, mark + number & 0xFFFFFFFF), body)
            for number, body in enumerate(bodies)
        ]
    )
    body = b"B\t%d\t%08x\t%d\t%08x\t%08x" % (len(lines), crc32(lines), offset, chain, mark)
    return b"%s%08x\t%s\n%s" % (MARK, crc32(body), body, lines)


def _fits(line: bytes, mark: int, number: int) -> bool:
    """Return whether a line, given without its newline, is that one of the batch with this mark."""
    return line[:9] == b"%08x\t" % crc32(line[9:], mark + number & 0xFFFFFFFF)


class Head(NamedTuple):
    body: bytes
    size: int
    """Bytes of the lines behind it."""
    digest: int
    offset: int
    chain: int
    mark: int
    lines: int
    """Where they begin in what it was read from."""


def head_at(data: bytes, at: int) -> Head | None:
    """Return the head that begins at `at`, if a whole one does."""
    if data[at : at + 2] != MARK:
        return None
    end = data.find(b"\n", at, at + 128)
    body = checked(data[at + 2 : end]) if end >= 0 else None
    if body is None or body[:2] != b"B\t":
        return None
    _, size, digest, offset, chain, mark = body.split(b"\t")
    numbers = (int(digest, 16), int(offset), int(chain, 16), int(mark, 16))
    return Head(body, int(size), *numbers, end + 1)


class Damaged(Exception):
    """What begins at byte `at` of a log is not what was written."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at
        self.why = why


class Batch(NamedTuple):
    """A batch that was read.

    Attributes:
        at: the byte of the file at which it begins.
        following: the one behind it.
        lines: each with the version of what it commits.
    """

    at: int
    following: int
    lines: list[tuple[int, bytes]]


class Reader:
    """Reads the batches of one log, checking each against what it says and is said of it.

    Args:
        fd: the log.
        start: its offset in the whole log.
        first: its first line.
        accepted: whether an operator has decided to go on without what is damaged at a byte.
    """

    def __init__(self, fd: int, start: int, first: bytes, accepted: Callable[[int], bool]) -> None:
        self._fd = fd
        self._start = start
        self._accepted = accepted
        self.at = len(first)
        """The byte of the file up to which it was read."""
        self._shift = 0
        """By how much more bytes were lost in front of it than came in addition."""
        self._vouched = self._oldest = start + self.at
        """Where the newest batch ends, and the oldest remembered one, in the whole log. What a
        crash left is passed over, and is no place that others know."""
        self._chain = crc32(first)
        self._chains = {self._vouched: self._chain}
        self._seen: dict[bytes, None] = {}
        """The heads of these batches."""

    def batch(self, bodies: Sequence[bytes]) -> bytes:
        """Return a batch that vouches for all that was read."""
        return batch(bodies, self._vouched, self._chain)

    def read(self, until: int) -> Iterator[Batch]:
        """Yield the whole batches up to byte `until`.

        Raises:
            Damaged: at the first damage that nobody has accepted.
            OSError: it cannot be read.
        """
        chunk = _CHUNK
        while self.at < until:
            data = os.pread(self._fd, min(chunk, until - self.at), self.at)
            final = len(data) < chunk or self.at + len(data) >= until
            base, done = self.at, 0
            while done < len(data):
                found = self._next(data, done, base, final=final)
                if found is None:
                    break
                done, batch, ended = found
                if batch is not None:
                    yield batch
                self.at = base + done
                if ended is not None:
                    self._note(ended)
            if not done:
                if final:
                    return
                chunk *= 2

    def _next(
        self, data: bytes, at: int, base: int, *, final: bool
    ) -> tuple[int, Batch | None, bytes | None] | None:
        """Return where what follows on `at` begins; the batch, if it is one; and the body of its
        head, if that can be vouched for from there on (empty: nothing is to be added to the chain).

        None: what begins there is still being written, or was torn by a crash.
        """
        found = head_at(data, at)
        end = at if found is None else found.lines + found.size
        if found is not None and end <= len(data):
            lines = data[found.lines : end]
            if crc32(lines) == found.digest:
                if found.body in self._seen:
                    if not self._accepted(base + at):
                        raise Damaged(base + at, "it is there twice")
                    return end, None, b""
                self._check(found, base + at)
                return end, self._batch(found, lines, base + at, at), found.body
        elif found is not None and not final:
            return None
        following = _next_head(data, at + 1)
        if following is None and not final:
            return None
        upto = len(data) if following is None else following
        skip = None if following is None else (following, None, None)
        # One that another begins inside of, torn or not, was cut short by a crash or a full disk.
        whole = found is not None and end <= upto
        if found is not None and data.find(MARK, found.lines, min(end + 1, upto)) >= 0:
            whole = False
        part = data[at : end if whole else upto]
        why = None
        if found is not None and found.body in self._seen:
            why = "it is there twice"
        elif whole:
            why = "its lines are not those that were written"
        elif following is not None and _is_begun_twice(part, data, following):
            why = "it is there twice"
        elif not _is_cut_short(part, at, found):
            why = "no batch begins there, and no crash explains that"
        if why is None or _is_zeroed(part, base + at):
            if found is not None and skip is not None:
                self._seen[found.body] = None  # Nobody writes the same one again.
            return skip
        if not self._accepted(base + at):
            raise Damaged(base + at, why)
        if whole and found is not None and upto == end:
            batch = self._batch(found, data[found.lines : end], base + at, at, damaged=True)
            return end, batch, found.body
        return upto, None, b""

    def _check(self, found: Head, at: int) -> None:
        """Check what a batch says of all that was in front of it."""
        known = self._chains.get(found.offset)
        if known == found.chain or (known is None and found.offset < self._oldest):
            return
        if not self._accepted(at):
            raise Damaged(
                at, "lines in front of it were removed, added or changed after it was written"
            )
        self._shift = found.offset - self._start - at
        self._chain = found.chain
        self._chains = {found.offset: found.chain}
        self._vouched = self._oldest = found.offset

    def _note(self, body: bytes) -> None:
        """Take note of a batch that ends where we are."""
        self._chain = crc32(body, self._chain)
        self._vouched = self._start + self.at + self._shift
        self._chains[self._vouched] = self._chain
        if body:
            self._seen[body] = None
            if len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]
        if len(self._chains) > _REMEMBERED:
            del self._chains[next(iter(self._chains))]
            self._oldest = next(iter(self._chains))

    def _batch(
        self, found: Head, lines: bytes, begin: int, at: int, *, damaged: bool = False
    ) -> Batch:
        """Return the batch that begins at byte `begin` of the log, `at` of what was read."""
        version = self._start + self._shift + begin + found.lines - at
        numbered = []
        for number, line in enumerate(lines.removesuffix(b"\n").split(b"\n")):
            if not damaged or _fits(line, found.mark, number):
                numbered.append((version, line))
            version += len(line) + 1
        return Batch(begin, begin + found.lines - at + found.size, numbered)


def _next_head(data: bytes, at: int) -> int | None:
    """Return where the next whole head begins."""
    while True:
        at = data.find(MARK, at)
        if at < 0:
            return None
        if head_at(data, at) is not None:
            return at
        at += 1


def _is_cut_short(part: bytes, at: int, found: Head | None) -> bool:
    """Return whether it consists of batches, each cut short, one behind the other.

    Args:
        part: what begins at `at`.
        found: the head of the first one, if that is whole.
    """
    first, *others = _MARKS.split(part if found is None else part[found.lines - at :])
    if found is None:
        fits = not first
    else:
        whole = enumerate(first.split(b"\n")[:-1])
        fits = all(_fits(line, found.mark, number) for number, line in whole)
    return fits and all(_BEGUN_HEAD.fullmatch(begun) for begun in others)


def _is_begun_twice(part: bytes, data: bytes, following: int) -> bool:
    """Return whether what was begun and cut short is the beginning of the batch behind it, too.

    Two batches differ in their checksums, so this one was doubled.
    """
    begun = part[part.rfind(MARK) :]
    return len(begun) >= len(MARK) + 8 and data.startswith(begun, following)


def _is_zeroed(part: bytes, at: int) -> bool:
    """Return whether a sector of it never reached the disk; `at` is where it begins in the file.

    What was lost reaches from one sector's edge, or from where the batch begins, to another, or to
    where it ends. No line has a zero.
    """
    return any(
        (not run.start() or (at + run.start()) % _SECTOR == 0)
        and (run.end() == len(part) or (at + run.end()) % _SECTOR == 0)
        for run in _ZEROS.finditer(part)
    )
