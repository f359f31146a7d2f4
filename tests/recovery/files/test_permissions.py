"""The permissions of new folders."""

from __future__ import annotations

import os
import platform
import stat
import subprocess
import sys
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
    for path, bits in ((shared, 0o2770), (own, 0o2775)):
        path.mkdir()
        path.chmod(bits)
        storage = JobStorage(path, "etl")
        storage.make()
        epoch = storage.take_over("job", 1)
        logs = storage.logs("job")
        found = [*epoch.parents[:2], epoch, storage.staging("job", 1, "stage", 1)]
        found += [storage.stream("job", 1, "stream") / name for name in ("ck", "staging")]

        wanted = 0o770 if path == shared else 0o700
        assert {mode(one) & 0o777 for one in found} == {wanted}
        assert mode(logs) & 0o777 == 0o700


@pytest.mark.usefixtures("umask")
def test_c3_what_the_jvm_makes(tmp_path: Path) -> None:
    """C3: what a child makes is for the group, if the storage is; what the process makes is not."""
    for name, bits in (("private", 0o2775), ("shared", 0o2770)):
        tmp_path.chmod(bits)
        with permissions.for_children(shared=permissions.is_shared(tmp_path)):
            subprocess.run(["touch", tmp_path / name], check=True)
    (tmp_path / "own").touch()

    assert [mode(tmp_path / name) for name in ("private", "shared", "own")] == [0o644, 0o660, 0o644]


FILTERED = """
import ctypes, struct, sys
from pathlib import Path
from jrs.recovery.files import permissions
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
# fchmod is call 91 of x86-64; its second argument is the mode.
program = b"".join(struct.pack("HBBI", *each) for each in [
    (LOAD, 0, 0, 0), (EQUAL, 0, 3, 91), (LOAD, 0, 0, 24), (ANY_BIT, 0, 1, 0o6000),
    (RETURN, 0, 0, 0x00050001), (RETURN, 0, 0, 0x7FFF0000),
])
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # No new privileges.
assert libc.prctl(22, 2, ctypes.byref(Program(len(program) // 8, program)), 0, 0) == 0
try:
    permissions.make(Path(sys.argv[1]))
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is one of x86-64")
@pytest.mark.usefixtures("umask")
def test_a_unit_that_may_share_nothing(tmp_path: Path) -> None:
    """systemd's filter refuses the bit that a shared folder needs: the setting is named."""
    tmp_path.chmod(0o2770)
    said = subprocess.run(
        [sys.executable, "-c", FILTERED, tmp_path / "new"], capture_output=True, text=True
    )

    assert "RestrictSUIDSGID=no" in said.stdout, said.stderr


def test_x3_a_link_in_the_place_of_a_folder(tmp_path: Path) -> None:
    """X3: another user of the group puts it there; the folder that it leads to stays as it was."""
    shared, other = tmp_path / "shared", tmp_path / "other"
    for path in (shared, other):
        path.mkdir(mode=0o700)
    shared.chmod(0o2770)
    (shared / "folder").symlink_to(other)

    with pytest.raises(OSError, match="folder"):
        permissions.make(shared / "folder", exist_ok=True)
    assert mode(other) == 0o700


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
