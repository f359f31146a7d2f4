"""Whichever call of the system fails, only errors of jrs leave the backend, and it works again."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from jrs.backends.file import replica
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.format.folder import MARKER
from jrs.contract.errors import JrsError
from jrs.contract.operations import Create

SYSTEM = (
    *("fdatasync", "fstat", "fsync", "link", "listdir", "lseek", "open", "pread", "scandir"),
    *("stat", "unlink", "write"),
)

CALLS: dict[str, Callable[[FileBackend], object]] = {
    "get": lambda backend: backend.get("k/0"),
    "scan": lambda backend: list(backend.scan("k/")),
    "created_since": lambda backend: list(backend.created_since("k/", 0)),
    "commit": lambda backend: backend.commit(Create("k/0", b"v")),
    "compact": lambda backend: backend.compact(),
    "check": lambda backend: list(backend.check()),
    "damaged_under": lambda backend: backend.damaged_under("k/"),
    "accept_damage": lambda backend: backend.accept_damage(),
    "epochs": lambda backend: list(backend.epochs()),
    "watch": lambda backend: backend.watch("k/").wait(0.0),
}


class FailingCall:
    """Has one call of the system fail with EIO, behind `good` others, in whichever thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.good: int | None = None
        for name in SYSTEM:
            monkeypatch.setattr(os, name, partial(self._call, getattr(os, name)))

    def _call(self, real: Callable[..., object], *args: object, **how: object) -> object:
        if self.good is not None:
            self.good -= 1
            if self.good == -1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*args, **how)


@pytest.mark.parametrize("version", [2, 6, 7])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_only_errors_of_jrs(
    version: int,
    call: Callable[[FileBackend], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that waits for the backend must not end by an error of a moment."""
    (tmp_path / MARKER).write_text(json.dumps({"format": "jrs", "version": version}))
    monkeypatch.setattr(replica, "_PAUSE", 0.0)
    failing = FailingCall(monkeypatch)
    with FileBackend(tmp_path) as writer, FileBackend(tmp_path) as backend:
        for number in range(60):
            writer.commit(Create(f"other/{number}", b"v"))  # There is something new to read.
            failing.good = number
            with suppress(JrsError):
                call(backend)
            failed, failing.good = failing.good < 0, None
            assert writer.get(f"other/{number}") == backend.get(f"other/{number}")
            if not failed:
                break
