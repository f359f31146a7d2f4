"""Trust: which jobs a master runs. It holds a job that it does not trust, with the reason."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase

import attrs

from jrs.contract.errors import InvalidInput, JobHeld
from jrs.records.model import JobSpec
from jrs.records.signing import SpecKey


def _patterns(instance: object, attribute: object, value: tuple[str, ...]) -> None:
    if not all(value):
        raise InvalidInput("an empty --allow-entry allows nothing: write a pattern, as 'etl.*'")


@attrs.frozen
class Trust:
    """The rules of a master. Without patterns, any entry point may run."""

    allow: tuple[str, ...] = attrs.field(default=(), validator=_patterns)
    """Shell patterns, in which ``*`` matches any text. They match modules and files' real paths,
    or, with a colon, whole entry points. Jobs with `JobSettings` then need a signature, too."""

    key: SpecKey | None = None
    """The key with which specs must be signed to run; None if they need no signature."""

    def check(self, spec: JobSpec, stored: bytes) -> None:
        """Raise `JobHeld` if this master must not run the job, or its `on_result`.

        Args:
            stored: the record that the spec was read from.
        """
        if spec.only_in_driver and spec.on_result is None:
            return  # Its code is the driver's own.
        self._check_signature(spec.job_id, stored)
        if not spec.only_in_driver:
            self._check_entry(spec.job_id, spec.entry_point)
            self._check_settings(spec)
        if spec.on_result is not None:
            self._check_entry(spec.job_id, spec.on_result.run)

    def _check_signature(self, job_id: str, stored: bytes) -> None:
        if self.key is not None and not self.key.has_signed(stored, f"the spec of job {job_id!r}"):
            raise JobHeld(
                f"the spec of job {job_id!r} is not signed with the masters' key; check it: "
                f"jrs show {job_id}; then: jrs sign {job_id}; or: jrs cancel {job_id}"
            )

    def _check_entry(self, job_id: str, entry_point: str) -> None:
        if not self.allow:
            return
        entry = _real(entry_point)
        place = entry.rpartition(":")[0]
        if not any(fnmatchcase(entry if ":" in one else place, one) for one in self.allow):
            raise JobHeld(
                f"the masters do not run {entry!r}: they allow {', '.join(self.allow)}; start them "
                f"with another --allow-entry; or: jrs cancel {job_id}"
            )

    def _check_settings(self, spec: JobSpec) -> None:
        # A variable or a jar can bring other code than the entry point's.
        if self.allow and self.key is None and spec.settings.given:
            raise JobHeld(
                f"the masters limit what runs, and job {spec.job_id!r} has settings that could run "
                f"other code ({', '.join(spec.settings.given)}): start the masters with a "
                f"--spec-key and sign the job; or: jrs cancel {spec.job_id}"
            )


def _real(entry_point: str) -> str:
    """Return an entry point as it is loaded: a file by its real path, links resolved."""
    place, colon, name = entry_point.rpartition(":")
    return f"{os.path.realpath(place)}:{name}" if colon and place.endswith(".py") else entry_point
