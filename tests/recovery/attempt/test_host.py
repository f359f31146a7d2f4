"""What a host has for a job: its files may be missing, be no files, or hang."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.clock import Deadline
from jrs.contract.errors import CannotStartHere
from jrs.records.model import JobSpec
from jrs.records.settings import JobSettings
from jrs.recovery.attempt import host
from jrs.recovery.processes.pools import side_by_side
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
    looks, before = host.HostLooks(), set(threading.enumerate())
    job = with_secret(tmp_path / "hanging")
    for _ in range(3):
        with pytest.raises(CannotStartHere, match="do not answer here"):
            looks.look(job, {})
    until(lambda: len(set(threading.enumerate()) - before) == 1, "one thread hangs")

    hanging.set()
    until(lambda: set(threading.enumerate()) <= before, "it has ended")
    host._PATIENCE = 60.0  # The fixture resets it.
    assert looks.look(job, {}).secrets == {"KEY": "late"}


def test_a_job_with_other_files_is_looked_at(tmp_path: Path, hanging: threading.Event) -> None:
    """The name of a job does not have to wait for what an earlier one of that name has named."""
    looks = host.HostLooks()
    with pytest.raises(CannotStartHere, match="do not answer here"):
        looks.look(with_secret(tmp_path / "hanging"), {})
    (tmp_path / "other").write_text("value")
    host._PATIENCE = 60.0  # The fixture resets it.

    assert looks.look(with_secret(tmp_path / "other"), {}).secrets == {"KEY": "value"}


def test_files_do_not_have_the_time_of_an_interpreter(
    tmp_path: Path, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing jrs may take long. A file next to the interpreter does not have that time, too."""
    monkeypatch.setattr(host, "_PROBE", 3600.0)
    secrets = {"KEY": f"file:{tmp_path / 'hanging'}"}
    job = spec("job", settings=JobSettings(secrets=secrets, python=sys.executable))

    [end] = side_by_side("look", [lambda: host.HostLooks().look(job, {})], Deadline.after(60))
    assert isinstance(end.error, CannotStartHere)


def test_a_secret_that_is_refused_leaves_nothing_open(tmp_path: Path) -> None:
    """A master looks again and again, and has a limited number of descriptors."""

    def opened() -> int:
        links = (Path("/proc/self/fd") / one for one in os.listdir("/proc/self/fd"))
        return sum(os.path.realpath(link) == str(tmp_path.resolve()) for link in links)

    with pytest.raises(CannotStartHere, match="cannot be read here: not a regular file"):
        host.HostLooks().look(with_secret(tmp_path), {})
    assert opened() == 0


def test_a_secret_is_a_regular_file(tmp_path: Path) -> None:
    """A pipe without a writer makes its reader wait without end, and it would serve one attempt."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("value\n")
    with pytest.raises(CannotStartHere, match=r"KEY: .*/pipe cannot be read here: not a reg"):
        host.HostLooks().look(with_secret(tmp_path / "pipe"), {})

    found = host.HostLooks().look(with_secret(tmp_path / "file"), {})
    assert found.secrets == {"KEY": "value"}
    assert "value" not in repr(found)
