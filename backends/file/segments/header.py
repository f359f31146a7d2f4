"""The header of a segment of format 3; without its runs it is also the first line of the tail."""

from __future__ import annotations

from typing import NamedTuple, Self

from jrs.contract.errors import UnsupportedVersion

from ..base.index import Trailer
from ..format.lines import checked, sealed
from .forms import NEW_FORM


class Header(NamedTuple):
    """The header of a segment of format 3."""

    start: int
    identity: bytes
    """The identity of the cluster's log, which no other log has."""
    runs: tuple[tuple[int, Trailer], ...] = ()
    """Newest first: the offset that names the file, and the file's trailer."""

    def line(self) -> bytes:
        runs = [b"%d:%s" % (start, trailer.describe()) for start, trailer in self.runs]
        return sealed(
            b"\t".join((b"L", b"%d" % NEW_FORM, b"%d" % self.start, self.identity, *runs))
        )

    def bare(self) -> Self:
        """Return the header without runs: the first line of the tail, which never changes."""
        return self._replace(runs=())

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """Return the header that `data` begins with, or None.

        Raises:
            UnsupportedVersion: the header has a newer form.
        """
        line, newline, _ = data.partition(b"\n")
        body = checked(line) if newline else None
        fields = [] if body is None else body.split(b"\t")
        if len(fields) < 4 or fields[0] != b"L":
            return None
        runs = [field.partition(b":") for field in fields[4:]]
        if fields[1] != b"%d" % NEW_FORM or len(runs) > 1:
            raise UnsupportedVersion("a segment in the form of a newer jrs; upgrade this one")
        return cls(
            int(fields[2]),
            fields[3],
            tuple((int(start), Trailer.described(rest)) for start, _, rest in runs),
        )
