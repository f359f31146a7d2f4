"""What an attempt in a process of its own needs of its host: interpreter, files, secrets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from jrs.contract.errors import CannotStartHere
from jrs.records.model import JobSpec
from jrs.records.settings import check_reference, local_path

_LARGEST = 64 * 1024
"""Bytes of the largest secret. Linux passes no larger environment variable than twice that."""
_PROBE = 60.0
"""Seconds in which an interpreter has to import jrs."""


def interpreter_of(spec: JobSpec) -> str:
    """Return the path of the interpreter that runs the job's attempts.

    Raises:
        CannotStartHere: this host has no such interpreter.
    """
    python = spec.settings.python
    if not python:
        return sys.executable
    found = shutil.which(python)
    if found is None:
        raise CannotStartHere(f"job {spec.job_id!r} needs the interpreter {python}: not found here")
    return found


def secrets_of(spec: JobSpec) -> dict[str, str]:
    """Return the values of the job's secrets, by the names of their environment variables.

    Raises:
        CannotStartHere: this host lacks one. The message shows its reference, and no value.
    """
    return {
        name: _resolved(spec.job_id, name, reference)
        for name, reference in spec.settings.secrets.items()
    }


def module_paths(py_files: tuple[str, ...]) -> list[str]:
    """Return where Python finds the modules in these files of this host."""
    paths = [Path(path) for path in map(local_path, py_files) if path is not None]
    return [str(path.parent if path.suffix == ".py" else path) for path in paths]


def check(spec: JobSpec, environment: dict[str, str]) -> None:
    """Check that this host has everything that the attempts of a job need before they start.

    Args:
        environment: of the attempts, without the job's own.

    Raises:
        CannotStartHere: something is missing; the message names it.
    """
    secrets_of(spec)
    for place in (*spec.settings.jars, *spec.settings.py_files):
        path = local_path(place)
        if path is not None and not os.access(path, os.R_OK):
            raise CannotStartHere(f"job {spec.job_id!r} needs the file {path}: not found here")
    if spec.settings.python:
        _check_interpreter(spec, environment)


def _check_interpreter(spec: JobSpec, environment: dict[str, str]) -> None:
    python = interpreter_of(spec)
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
        with Path(place).open("rb") as file:
            data = file.read(_LARGEST + 1)
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
