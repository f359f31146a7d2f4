"""The header of a segment since format 3; without its runs it is also the tail's first line."""

from __future__ import annotations

from typing import NamedTuple, Self

from jrs.contract.errors import UnsupportedVersion

from ..base.index import Names, Trailer, name, named
from ..format.lines import checked, sealed
from .forms import Form


class Header(NamedTuple):
    """The header of a segment since format 3."""

    start: int
    identity: bytes
    """The identity of the cluster's log, which no other log has."""
    form: Form = Form.BATCHES
    runs: Names = ()

    def line(self) -> bytes:
        runs = map(name, self.runs)
        return sealed(
            b"\t".join((b"L", b"%d" % self.form, b"%d" % self.start, self.identity, *runs))
        )

    def bare(self) -> Self:
        """Return the header without runs: the first line of the tail, which never changes."""
        return self._replace(runs=())

    def with_run(self, trailer: Trailer) -> Self:
        """Return the header of a segment whose own run has this trailer."""
        return self._replace(runs=((self.start, trailer), *trailer.below))

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
        form = int(fields[1])
        if form not in (Form.BATCHES, Form.LEVELS):
            raise UnsupportedVersion("a segment in the form of a newer jrs; upgrade this one")
        return cls(int(fields[2]), fields[3], Form(form), named(fields[4:]))
