"""What a host has for a job: its files may be missing, be no files, or hang."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import CannotStartHere
from jrs.records.model import JobSpec
from jrs.records.settings import JobSettings
from jrs.recovery.attempt import host
from tests.recovery.support import spec
from tests.support import until


def with_secret(path: Path, job_id: str = "job") -> JobSpec:
    return spec(job_id, settings=JobSettings(secrets={"KEY": f"file:{path}"}))


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A file that answers only once the event is set, and a allowed that is over at once."""
    answers, opened = threading.Event(), os.open

    def slowly(path: Any, *how: Any, **more: Any) -> int:
        if str(path).endswith("/hanging"):
            answers.wait()
        return opened(path, *how, **more)

    (tmp_path / "hanging").write_text("late")
    monkeypatch.setattr(os, "open", slowly)
    monkeypatch.setattr(host, "_PATIENCE", 0.0)
    yield answers
    answers.set()


def test_a_file_that_hangs_is_waited_for_once(tmp_path: Path, hanging: threading.Event) -> None:
    """No thread is added by each try, and the job starts once the file answers."""
    looks, before = host.HostLooks(), threading.active_count()
    job = with_secret(tmp_path / "hanging")
    for _ in range(3):
        with pytest.raises(CannotStartHere, match="do not answer here"):
            looks.look(job, {})
    until(lambda: threading.active_count() == before + 1, "one thread hangs")

    hanging.set()
    until(lambda: threading.active_count() == before, "it has ended")
    host._PATIENCE = 60.0  # The fixture resets it.
    assert looks.look(job, {}).secrets == {"KEY": "late"}


def test_a_secret_is_a_regular_file(tmp_path: Path) -> None:
    """A pipe without a writer makes its reader wait without end, and it would serve one attempt."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("value\n")
    with pytest.raises(CannotStartHere, match=r"KEY: .*/pipe cannot be read here: not a reg"):
        host.HostLooks().look(with_secret(tmp_path / "pipe"), {})

    found = host.HostLooks().look(with_secret(tmp_path / "file"), {})
    assert found.secrets == {"KEY": "value"}
    assert "value" not in repr(found)
