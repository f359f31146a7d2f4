"""What an attempt in a process of its own needs of its host: interpreter, files, secrets."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import CannotStartHere
from jrs.records.model import JobSpec
from jrs.records.settings import check_reference, local_path

from ..processes.pools import side_by_side

T = TypeVar("T")

_LARGEST = 64 * 1024
"""Bytes of the largest secret. Linux passes no larger environment variable than twice that."""
_PROBE = 60.0
"""Seconds in which an interpreter has to import jrs."""
_PATIENCE = 10.0
"""Seconds in which the files that a job names have to answer: they may be on a mount that hangs."""


@attrs.frozen
class Found:
    """What a host has for the attempts of a job."""

    python: str
    """The path of the interpreter that its settings name; empty if they name none."""
    secrets: dict[str, str] = attrs.field(repr=False)
    """The values of its secrets, by the names of their environment variables."""


class HostLooks:
    """Looks at what a host has for jobs. Safe for use by many threads.

    Users name the files, and any of them may hang. Each look has a thread of its own; one that has
    not ended in time is left behind, and none is begun again for its job and these files before it
    has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[tuple[str, tuple[str, ...]]] = set()

    def look(self, spec: JobSpec, environment: dict[str, str]) -> Found:
        """Return what this host has for the attempts of a job, which have not started yet.

        Args:
            environment: of the attempts, without the job's own.

        Raises:
            CannotStartHere: something is missing, or does not answer in time; the message names it,
                and shows no secret.
            RuntimeError: the system gives this process no thread.
        """
        files = _files(spec)
        if not files:
            return _find(spec)
        found = self._in_time(spec.job_id, files, _PATIENCE, partial(_find, spec))
        if found.python:
            probe = partial(_check_interpreter, spec, found.python, environment)
            self._in_time(spec.job_id, files, _PROBE + _PATIENCE, probe)
        return found

    def _in_time(
        self, job_id: str, files: tuple[str, ...], allowed: float, look: Callable[[], T]
    ) -> T:
        def once() -> T:
            with self._lock:
                if (job_id, files) in self._under_way:
                    raise CannotStartHere(_hangs(job_id))
                self._under_way.add((job_id, files))
            try:
                return look()
            finally:
                with self._lock:
                    self._under_way.discard((job_id, files))

        [end] = side_by_side(f"jrs-host-{job_id}", [once], Deadline.after(allowed))
        if end.error is not None:
            raise end.error
        if end.hangs:
            raise CannotStartHere(_hangs(job_id))
        return cast(T, end.value)


def _hangs(job_id: str) -> str:
    return f"job {job_id!r} names files that do not answer here: a secret, jar or interpreter"


def names_files(spec: JobSpec) -> bool:
    """Return whether a job's settings name files of the host, which may hang."""
    return bool(_files(spec))


def _files(spec: JobSpec) -> tuple[str, ...]:
    settings = spec.settings
    references = (check_reference(name, where) for name, where in settings.secrets.items())
    secrets = [place for kind, place in references if kind == "file"]
    return (*filter(None, [settings.python]), *settings.jars, *settings.py_files, *secrets)


def module_paths(py_files: tuple[str, ...]) -> list[str]:
    """Return where Python finds the modules in these files of this host."""
    paths = [Path(path) for path in map(local_path, py_files) if path is not None]
    return [str(path.parent if path.suffix == ".py" else path) for path in paths]


def _find(spec: JobSpec) -> Found:
    secrets = {
        name: _resolved(spec.job_id, name, reference)
        for name, reference in spec.settings.secrets.items()
    }
    for place in (*spec.settings.jars, *spec.settings.py_files):
        path = local_path(place)
        if path is not None and not os.access(path, os.R_OK):
            raise CannotStartHere(f"job {spec.job_id!r} needs the file {path}: not found here")
    return Found(_interpreter(spec) if spec.settings.python else "", secrets)


def _interpreter(spec: JobSpec) -> str:
    python = spec.settings.python
    found = shutil.which(python)
    if found is None:
        raise CannotStartHere(f"job {spec.job_id!r} needs the interpreter {python}: not found here")
    return found


def _check_interpreter(spec: JobSpec, python: str, environment: dict[str, str]) -> None:
    probe = [python, "-c", "import jrs.recovery.attempt.launch"]
    try:
        done = subprocess.run(
            probe,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE,
            check=False,
        )
        why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        works = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        works, why = False, str(error)
    if not works:
        raise CannotStartHere(
            f"job {spec.job_id!r} needs the interpreter {python}, which cannot import jrs: {why}; "
            "install jrs for it"
        )


def _read(place: str) -> bytes:
    # A pipe has no end, and would give each attempt something else.
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_LARGEST + 1)
    finally:
        os.close(descriptor)  # Opening refuses a folder, and does not close its descriptor.


def _resolved(job_id: str, name: str, reference: str) -> str:
    kind, place = check_reference(name, reference)
    if kind == "env":
        value = os.environ.get(place)
        if value is None:
            raise CannotStartHere(
                f"job {job_id!r} needs the secret {name}: this master has no environment variable "
                f"{place}"
            )
        return value
    try:
        data = _read(place)
        if len(data) > _LARGEST:
            raise ValueError(f"over {_LARGEST:,} bytes")
        value = data.decode()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text of at most 64 KiB"
        raise CannotStartHere(
            f"job {job_id!r} needs the secret {name}: {place} cannot be read here: {why}"
        ) from None
    if "\0" in value:
        raise CannotStartHere(f"job {job_id!r} needs the secret {name}: {place} is no text")
    return value.removesuffix("\n")
