"""The permissions of new folders."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jrs.recovery.files import permissions
from jrs.recovery.files.job_folders import JobStorage


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> object:
    """Whatever the test sets is undone."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_c3_a_storage_that_a_group_shares(tmp_path: Path) -> None:
    """C3: what is made in it is for the group, too, but for logs; in any other, for the user."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    for path, bits in ((shared, 0o2770), (own, 0o750)):
        path.mkdir()
        path.chmod(bits)
        storage = JobStorage(path, "etl")
        storage.make()
        epoch = storage.take_over("job", 1)
        logs = storage.logs("job")
        found = [*epoch.parents[:2], epoch, storage.staging("job", 1, "stage", 1)]
        found += [storage.stream("job", 1, "stream") / name for name in ("ck", "staging")]

        wanted = 0o2770 if path == shared else 0o700
        assert {mode(one) for one in found} == {wanted}
        assert mode(logs) & 0o777 == 0o700


@pytest.mark.usefixtures("umask")
def test_c3_what_a_process_makes_from_then_on(tmp_path: Path) -> None:
    """C3: files and folders of the attempt and its JVM are for the group, if the storage is."""
    permissions.share(tmp_path)
    (tmp_path / "private").touch()
    tmp_path.chmod(0o2770)
    permissions.share(tmp_path)
    (tmp_path / "shared").touch()

    assert [mode(tmp_path / name) for name in ("private", "shared")] == [0o644, 0o660]


def test_a_folder_that_a_crash_left_unshared(tmp_path: Path) -> None:
    """It was made, and not yet shared: the next call shares it."""
    tmp_path.chmod(0o2770)
    (tmp_path / "folder").mkdir(mode=0o700)

    permissions.make(tmp_path / "folder" / "inner", parents=True)
    permissions.make(tmp_path / "folder", exist_ok=True)

    assert mode(tmp_path / "folder") == 0o2770
    with pytest.raises(FileExistsError):
        permissions.make(tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        permissions.make(tmp_path / "missing" / "inner")
