"""The batches of a log in format 3: a writer appends each at once, and later ones reveal losses.

::

    <crc> L 3 <start> <identity> <run> …          the first line of the log, and of its header file
    ~~<crc> B <bytes> <digest> <offset> <chain> <mark>   the head of a batch
    <crc> C …  or  <crc> S                        its lines, as in `jrs.backends.file.format.lines`

`bytes` and `digest` (CRC-32) describe the lines that follow, so a batch is valid as a whole or not
at all. The checksum of a line starts from the batch's mark plus the line's number in it, which
distinguishes the remains of a torn batch from lines that belong elsewhere.

Writers append without a lock, and so without knowing the end of the log. But each states how far it
has read: at `offset` (in the whole log), `chain` was the checksum of all heads up to there. So each
batch vouches for everything that its writer had read. Data that was removed, doubled, swapped or
zeroed before that point does not match, and differs from the remains of a crash:

- data that no later batch vouches for may be the remains of a crash, if it is the beginning of a
  batch, cut short, or has zeros from one sector's edge to another; then it was never acknowledged,
  or it is the newest data and the two cases cannot be distinguished;
- all other data without a matching checksum was damaged.

Each batch has a random mark of its own, so a batch that occurs twice was doubled.
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
"""The form of a head that was cut off, behind its `MARK`."""
_REMEMBERED = 4096
"""Batches that are remembered; a batch that vouches only for older ones is trusted unchecked."""


def batch(bodies: Sequence[bytes], offset: int, chain: int) -> bytes:
    """Return a batch of lines with these bodies, for a writer that has read up to `offset`."""
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
    """Return whether a line (without newline) is line `number` of the batch with this mark."""
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
    """The offset of the lines in the data that was read."""


def head_at(data: bytes, at: int) -> Head | None:
    """Return the whole head that begins at `at`, or None."""
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
    """The log is damaged at byte `at`."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at
        self.why = why


class Batch(NamedTuple):
    """A batch that was read.

    Attributes:
        at: the byte of the file at which the batch begins.
        following: the byte behind the batch.
        lines: each with the version of its commit.
    """

    at: int
    following: int
    lines: list[tuple[int, bytes]]


class Reader:
    """Reads the batches of one log and checks each by its own head and by later batches.

    Args:
        fd: the descriptor of the log.
        start: its offset in the whole log.
        first: its first line.
        accepted: returns whether an operator has accepted the damage at a byte.
    """

    def __init__(self, fd: int, start: int, first: bytes, accepted: Callable[[int], bool]) -> None:
        self._fd = fd
        self._start = start
        self._accepted = accepted
        self.at = len(first)
        """The byte of the file up to which the log was read."""
        self._shift = 0
        """The number of bytes lost before this point, minus the bytes added."""
        self.most_lost = 0
        """The largest number of bytes by which a version is ahead of its byte in the file."""
        self._vouched = self._oldest = start + self.at
        """The ends of the newest and the oldest remembered batch, in the whole log. Remains of a
        crash are skipped, and no batch vouches for them."""
        self._chain = crc32(first)
        self._chains = {self._vouched: self._chain}
        self._seen: dict[bytes, None] = {}
        """The heads of the remembered batches."""

    def batch(self, bodies: Sequence[bytes]) -> bytes:
        """Return a batch that vouches for everything read so far."""
        return batch(bodies, self._vouched, self._chain)

    def read(self, until: int) -> Iterator[Batch]:
        """Yield the whole batches up to byte `until`.

        Raises:
            Damaged: at the first damage that no operator has accepted.
            OSError: the log cannot be read.
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
        """Return the end of the data at `at`, its batch and the body of its head for the chain.

        The batch is None if the data is not a valid batch. The body is None if later batches do not
        vouch for the data, and empty if it does not change the chain. Returns None if the data is
        still being written, or was torn by a crash.
        """
        found = head_at(data, at)
        end = at if found is None else found.lines + found.size
        if found is not None and end <= len(data):
            lines = data[found.lines : end]
            if crc32(lines) == found.digest:
                if found.body in self._seen:
                    if not self._accepted(base + at):
                        raise Damaged(base + at, "it occurs twice")
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
        # If another batch begins inside of this one, a crash or a full disk cut this one short.
        whole = found is not None and end <= upto
        if found is not None and data.find(MARK, found.lines, min(end + 1, upto)) >= 0:
            whole = False
        part = data[at : end if whole else upto]
        why = None
        if found is not None and found.body in self._seen:
            why = "it occurs twice"
        elif whole:
            why = "its lines have changed since they were written"
        elif following is not None and _is_begun_twice(part, data, following):
            why = "it occurs twice"
        elif not _is_cut_short(part, at, found):
            why = "no batch begins there, and a crash cannot explain that"
        if why is None or _is_zeroed(part, base + at):
            if found is not None and skip is not None:
                self._seen[found.body] = None  # No writer writes the same batch again.
            return skip
        if not self._accepted(base + at):
            raise Damaged(base + at, why)
        if whole and found is not None and upto == end:
            batch = self._batch(found, data[found.lines : end], base + at, at, damaged=True)
            return end, batch, found.body
        return upto, None, b""

    def _check(self, found: Head, at: int) -> None:
        """Check the batch's statement about the data before it."""
        known = self._chains.get(found.offset)
        if known == found.chain or (known is None and found.offset < self._oldest):
            return
        if not self._accepted(at):
            raise Damaged(at, "lines before it were removed, added or changed after it was written")
        self._shift = found.offset - self._start - at
        self.most_lost = max(self.most_lost, self._shift)
        self._chain = found.chain
        self._chains = {found.offset: found.chain}
        self._vouched = self._oldest = found.offset

    def _note(self, body: bytes) -> None:
        """Record a batch that ends at the current position."""
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
        """Return the batch at byte `begin` of the log, which is `at` in the data that was read."""
        version = self._start + self._shift + begin + found.lines - at
        numbered = []
        for number, line in enumerate(lines.removesuffix(b"\n").split(b"\n")):
            if not damaged or _fits(line, found.mark, number):
                numbered.append((version, line))
            version += len(line) + 1
        return Batch(begin, begin + found.lines - at + found.size, numbered)


def _next_head(data: bytes, at: int) -> int | None:
    """Return the offset of the next whole head."""
    while True:
        at = data.find(MARK, at)
        if at < 0:
            return None
        if head_at(data, at) is not None:
            return at
        at += 1


def _is_cut_short(part: bytes, at: int, found: Head | None) -> bool:
    """Return whether `part` is a sequence of batches that were cut short.

    Args:
        part: the data at `at`.
        found: the head of the first batch, if it is whole.
    """
    first, *others = _MARKS.split(part if found is None else part[found.lines - at :])
    if found is None:
        fits = not first
    else:
        whole = enumerate(first.split(b"\n")[:-1])
        fits = all(_fits(line, found.mark, number) for number, line in whole)
    return fits and all(_BEGUN_HEAD.fullmatch(begun) for begun in others)


def _is_begun_twice(part: bytes, data: bytes, following: int) -> bool:
    """Return whether the batch that was cut short is also the beginning of the next batch.

    Two batches differ in their checksums, so this batch was doubled.
    """
    begun = part[part.rfind(MARK) :]
    return len(begun) >= len(MARK) + 8 and data.startswith(begun, following)


def _is_zeroed(part: bytes, at: int) -> bool:
    """Return whether a sector of `part`, which begins at `at`, never reached the disk.

    The zeros reach from a sector's edge or the begin of the part to a sector's edge or its end.
    Lines contain no zeros.
    """
    return any(
        (not run.start() or (at + run.start()) % _SECTOR == 0)
        and (run.end() == len(part) or (at + run.end()) % _SECTOR == 0)
        for run in _ZEROS.finditer(part)
    )
