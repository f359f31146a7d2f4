"""The archives of Spark's classes that stay and that go; those of real JVMs are tested on Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jrs.recovery.spark import class_data

DAY = 86400.0


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive of this host's Spark, and those of others."""
    monkeypatch.setenv(class_data.FOLDER, str(tmp_path))
    monkeypatch.setattr(class_data, "_hindrance", lambda: None)
    found = class_data.place()
    if found is None:
        pytest.skip("no Spark or no Java")
    return found


def aged(path: Path, now: float, days: float) -> Path:
    path.touch()
    os.utime(path, (now - days * DAY,) * 2)
    return path


def test_an_archive_that_no_session_uses_is_deleted(archive: Path) -> None:
    """Also its lock. The one that was just made stays, and so does what is none of Spark's."""
    now = 1000 * DAY
    stay = [
        aged(archive, now, 50),
        aged(archive.with_name("spark-4.1.0-00.jsa"), now, 29),
        aged(archive.with_name("spark-4.1.0-00.lock"), now, 90),
        aged(archive.with_name("notes.jsa"), now, 90),
    ]
    aged(archive.with_name("spark-4.0.0-11.jsa"), now, 31)
    aged(archive.with_name("spark-4.0.0-11.lock"), now, 31)
    class_data.delete_unused(archive, now)

    assert sorted(archive.parent.iterdir()) == sorted(stay)


def test_a_session_marks_its_archive_as_used(archive: Path) -> None:
    aged(archive, 1000 * DAY, 50)
    before = archive.stat().st_mtime

    assert str(archive) in class_data.options()
    assert archive.stat().st_mtime > before
