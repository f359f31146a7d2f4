"""What an attempt in a process of its own needs of its host: interpreter, files, secrets."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import threading
from pathlib import Path

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import CannotStartHere
from jrs.records.model import JobSpec
from jrs.records.settings import check_reference, local_path

from ..processes.pools import side_by_side

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
    not ended in time is left behind, and none is begun again for its job before it has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    def look(self, spec: JobSpec, environment: dict[str, str]) -> Found:
        """Return what this host has for the attempts of a job, which have not started yet.

        Args:
            environment: of the attempts, without the job's own.

        Raises:
            CannotStartHere: something is missing, or does not answer in time; the message names it,
                and shows no secret.
            RuntimeError: the system gives this process no thread.
        """
        if not names_files(spec):
            return _find(spec, environment)
        allowed = _PATIENCE + (_PROBE if spec.settings.python else 0.0)
        calls = [lambda: self._find_once(spec, environment)]
        [end] = side_by_side(f"jrs-host-{spec.job_id}", calls, Deadline.after(allowed))
        if end.error is not None:
            raise end.error
        if end.value is None:
            raise CannotStartHere(_hangs(spec))
        return end.value

    def _find_once(self, spec: JobSpec, environment: dict[str, str]) -> Found:
        with self._lock:
            if spec.job_id in self._under_way:
                raise CannotStartHere(_hangs(spec))
            self._under_way.add(spec.job_id)
        try:
            return _find(spec, environment)
        finally:
            with self._lock:
                self._under_way.discard(spec.job_id)


def _hangs(spec: JobSpec) -> str:
    return f"job {spec.job_id!r} names files that do not answer here: a secret, jar or interpreter"


def names_files(spec: JobSpec) -> bool:
    """Return whether a job's settings name files of the host, which may hang."""
    settings = spec.settings
    kinds = (check_reference(name, where)[0] for name, where in settings.secrets.items())
    return bool(settings.python or settings.jars or settings.py_files) or "file" in kinds


def module_paths(py_files: tuple[str, ...]) -> list[str]:
    """Return where Python finds the modules in these files of this host."""
    paths = [Path(path) for path in map(local_path, py_files) if path is not None]
    return [str(path.parent if path.suffix == ".py" else path) for path in paths]


def _find(spec: JobSpec, environment: dict[str, str]) -> Found:
    secrets = {
        name: _resolved(spec.job_id, name, reference)
        for name, reference in spec.settings.secrets.items()
    }
    for place in (*spec.settings.jars, *spec.settings.py_files):
        path = local_path(place)
        if path is not None and not os.access(path, os.R_OK):
            raise CannotStartHere(f"job {spec.job_id!r} needs the file {path}: not found here")
    python = _interpreter(spec) if spec.settings.python else ""
    if python:
        _check_interpreter(spec, python, environment)
    return Found(python, secrets)


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
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(_LARGEST + 1)


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
