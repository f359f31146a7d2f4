"""What a chaos run needs around it, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jrs.contract.backend import Backend
from jrs.contract.errors import InvalidInput
from jrs.records import keys

_DISK = "200m"
"""The size of the filesystem that is filled."""


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def small_disk(path: Path, say: Callable[[str], None]) -> Iterator[Path | None]:
    """Mount a small filesystem in memory, or say that it is impossible."""
    path.mkdir()
    why = "only root may mount"
    if os.geteuid() == 0:
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "jrs-chaos", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
            why = done.stderr.strip() if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
    if why:
        say(f"the disk is never full in this run: no small filesystem could be mounted: {why}")
        yield None
        return
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False, timeout=30)


def records_left(backend: Backend) -> Iterator[str]:
    """Yield the keys of the records that exist only while jobs run or are cleaned up."""
    for prefix in (keys.JOBS, keys.DIRTY, *keys.WHILE_IT_RUNS):
        for record in backend.scan(prefix):
            yield record.key


def fsck(url: str, cluster: str, storage: Path) -> list[str]:
    """Return what `jrs fsck` finds, in one line; none if it finds nothing."""
    command = [sys.executable, "-m", "jrs", "--backend", url, "--cluster", cluster, "fsck",
               "--storage", str(storage)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return [f"fsck: {done.stdout}{done.stderr}".strip()] if done.returncode else []


_CHECK_ENTRY = """
import json, sys
from jrs.contract.errors import JrsError
from jrs.recovery.attempt.entry_point import check_arguments, load

try:
    check_arguments(load(sys.argv[1]), sys.argv[1], json.loads(sys.argv[2]))
except JrsError as error:
    sys.exit(str(error))
"""


def check_entry(
    entry_point: str, arguments: Mapping[str, Any], variables: Mapping[str, str]
) -> None:
    """Check that masters can import an entry point, and that it takes these arguments.

    Args:
        variables: environment variables that the masters have besides those of this process.

    Raises:
        InvalidInput: they cannot, or it does not.
    """
    command = [sys.executable, "-c", _CHECK_ENTRY, entry_point, json.dumps(dict(arguments))]
    try:
        done = subprocess.run(
            command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="backslashreplace", timeout=120, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InvalidInput(f"{entry_point} is not imported within two minutes") from None
    if done.returncode:
        raise InvalidInput(done.stderr.strip().rpartition("\n")[2] or f"{entry_point} ends Python")
