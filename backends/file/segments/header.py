"""The header of a segment since format 3; without its runs it is also the tail's first line."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

from jrs.contract.errors import UnsupportedVersion
from jrs.contract.formats import NEWEST_FORMAT

from ..base.index import Names, Trailer, name, named
from ..base.overlay import Stored
from ..format.lines import checked, sealed
from .forms import Form


class Header(NamedTuple):
    """The header of a segment since format 3."""

    start: int
    identity: bytes
    """The identity of the cluster's log, which no other log has."""
    form: Form = Form.BATCHES
    runs: Names = ()
    epoch: Stored | None = None
    """The epoch's record at the segment's begin. Nearly every commit depends on it, so its line in
    the base is not left to be the only copy. None if it was absent, unknown or long, and in the
    form of batches."""

    def line(self) -> bytes:
        epoch = [] if self.epoch is None else [b"E%d:%s" % (self.epoch[1], self.epoch[0])]
        fields = (b"%d" % self.form, b"%d" % self.start, self.identity)
        return sealed(b"\t".join((b"L", *fields, *epoch, *map(name, self.runs))))

    def bare(self) -> Self:
        """Return the header without runs: the first line of the tail, which never changes."""
        return self._replace(runs=())

    def with_run(self, trailer: Trailer) -> Self:
        """Return the header of a segment whose own run has this trailer."""
        return self._replace(runs=((self.start, trailer), *trailer.below))

    @classmethod
    def parse(cls, data: bytes, path: Path) -> Self | None:
        """Return the header that `data` begins with, or None.

        Args:
            path: of the file that has the data, for the error.

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
            raise UnsupportedVersion(
                f"{path} is a segment of form {form}, which a newer jrs has written; this jrs "
                f"reads up to form {max(Form)}, that of cluster format {NEWEST_FORMAT}: upgrade it"
            )
        epoch, runs = None, fields[4:]
        if runs and runs[0].startswith(b"E"):
            version, _, value = runs.pop(0)[1:].partition(b":")
            epoch = value, int(version)
        return cls(int(fields[2]), fields[3], Form(form), named(runs), epoch)
