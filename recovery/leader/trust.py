"""Trust: which jobs a master runs. It holds a job that it does not trust, with the reason."""

from __future__ import annotations

import os
import shutil
from fnmatch import fnmatchcase

import attrs

from jrs.contract.errors import InvalidInput, JobHeld
from jrs.records.model import JobSpec
from jrs.records.on_result import OnResult
from jrs.records.signing import SpecKey


def _patterns(instance: object, attribute: object, value: tuple[str, ...]) -> None:
    if not all(value):
        raise InvalidInput("an empty --allow-entry allows nothing: write a pattern, as 'etl.*'")


@attrs.frozen
class Trust:
    """The rules of a master. Without patterns, any entry point may run."""

    allow: tuple[str, ...] = attrs.field(default=(), validator=_patterns)
    """Shell patterns, in which ``*`` matches any text. They match modules and files' real paths,
    or, with a colon, whole entry points. A command of `OnResult` counts by the real path of its
    program. Jobs with `JobSettings` then need a signature, too."""

    key: SpecKey | None = None
    """The key with which specs must be signed to run; None if they need no signature."""

    other_keys: tuple[SpecKey, ...] = ()
    """Keys that count as well, while the cluster changes its key."""

    def check(self, spec: JobSpec, stored: bytes) -> None:
        """Raise `JobHeld` if this master must not run the job, or its `on_result`.

        Args:
            stored: the record that the spec was read from.
        """
        if spec.only_in_driver and spec.on_result is None:
            return  # Its code is the driver's own.
        self._check_signature(spec.job_id, stored)
        if not spec.only_in_driver:
            self._check_allowed(spec.job_id, *_entry(spec.entry_point))
            self._check_settings(spec)
        if spec.on_result is not None:
            self._check_allowed(spec.job_id, *_hook(spec.on_result))

    def _check_signature(self, job_id: str, stored: bytes) -> None:
        if self.key is None:
            return
        where = f"the spec of job {job_id!r}"
        if not any(key.has_signed(stored, where) for key in (self.key, *self.other_keys)):
            raise JobHeld(
                f"{where} is not signed with the masters' key; check it: "
                f"jrs show {job_id}; then: jrs sign {job_id} --spec-key FILE"
            )

    def _check_allowed(self, job_id: str, place: str, whole: str) -> None:
        if self.allow and not any(
            fnmatchcase(whole if ":" in one else place, one) for one in self.allow
        ):
            raise JobHeld(
                f"the masters do not run {whole or place!r}: they allow {', '.join(self.allow)}; "
                "start them with another --allow-entry"
            )

    def _check_settings(self, spec: JobSpec) -> None:
        # A variable or a jar can bring other code than the entry point's.
        if self.allow and self.key is None and spec.settings.given:
            raise JobHeld(
                f"the masters limit what runs, and job {spec.job_id!r} has settings that could run "
                f"other code ({', '.join(spec.settings.given)}): start the masters with a "
                "--spec-key and sign the job"
            )


def _entry(entry_point: str) -> tuple[str, str]:
    """Return where an entry point's code is, and the whole of it, as it is loaded: a file by its
    real path, links resolved."""
    place, _, name = entry_point.rpartition(":")
    if place.endswith(".py"):
        place = os.path.realpath(place)
    return place, f"{place}:{name}"


def _hook(hook: OnResult) -> tuple[str, str]:
    """Return what `_entry` does. A command is its program, by the real path; it is no entry point
    as a whole, whatever colons are in it."""
    if hook.is_entry_point:
        return _entry(hook.run)
    program = hook.words[0]
    return os.path.realpath(shutil.which(program) or program), ""
