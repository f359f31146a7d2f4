"""The folder of an attempt's temporary files on a local disk."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jrs.contract import storage_place
from jrs.contract.errors import CannotStartHere
from jrs.recovery.attempt import scratch

ATTEMPT = """
import sys
from jrs.recovery.attempt import scratch
print(*scratch.make(sys.argv[1]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    return tmp_path / f"jrs-scratch-{os.getuid()}"


def test_c8_a_dead_attempts_folder_is_removed_and_a_living_ones_stays(place: Path) -> None:
    """C8: also if its watchdog is dead. A lock tells, which other containers see."""
    with subprocess.Popen(
        [sys.executable, "-c", ATTEMPT, "living"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as living:  # fmt: skip
        assert living.stdout is not None
        assert living.stdout.readline().strip() == str(place / "attempt-living")
        (place / "attempt-dead").mkdir()
        (place / "attempt-dead" / "spilled").touch()

        assert scratch.make("mine") == scratch.make("mine") == (place / "attempt-mine",)
        assert sorted(os.listdir(place)) == ["attempt-living", "attempt-mine"]
        living.kill()

    scratch.make("mine")
    assert os.listdir(place) == ["attempt-mine"]
    scratch.remove("mine", os.environ)
    assert os.listdir(place) == []


SWEEP = """
import fcntl, os, sys
from pathlib import Path
from jrs.recovery.attempt import scratch
flock = fcntl.flock
def after_a_word(*how):
    print("opened", flush=True)
    sys.stdin.readline()
    return flock(*how)
fcntl.flock = after_a_word
scratch._remove_unheld(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("call", ["mkdir", "open", "flock"])
def test_c8_attempts_that_start_at_once_do_not_lose_their_folders(
    place: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """C8: another attempt takes a folder for a dead one's before it is locked, after any call."""
    module = {"mkdir": Path, "open": os, "flock": fcntl}[call]
    real, swept = getattr(module, call), list[str]()

    def then_sweep(*arguments: Any, **more: Any) -> Any:
        done = real(*arguments, **more)
        if not swept and (place / "attempt-mine").exists():
            swept.append(call)
            shutil.rmtree(place / "attempt-mine")
        return done

    monkeypatch.setattr(module, call, then_sweep)

    assert scratch.make("mine") == (place / "attempt-mine",)
    assert swept == [call]
    assert (place / "attempt-mine").exists()


def test_c8_a_new_folder_is_not_taken_for_the_one_before(place: Path) -> None:
    """C8: an attempt that has opened a folder, and locks it only once that was removed and made
    again, leaves the new one alone."""
    (place / "attempt-mine").mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", SWEEP, place / "attempt-mine"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as sweeping:  # fmt: skip
        assert sweeping.stdout is not None
        assert sweeping.stdout.readline() == "opened\n"
        (place / "attempt-mine").rmdir()
        scratch.make("mine")
        (place / "attempt-mine" / "spilled").touch()
        sweeping.communicate("go on\n")

    assert sweeping.returncode == 0
    assert (place / "attempt-mine" / "spilled").exists()


def test_c8_a_sweep_that_fails_is_no_obstacle(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C8: the place may be unreadable for what other attempts have left."""

    def fails(folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "iterdir", fails)

    assert scratch.make("mine") == (place / "attempt-mine",)


def test_c8_a_place_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C8: it is the host's fault, and the job may start on another one."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path / "file"))

    with pytest.raises(CannotStartHere, match=r"JRS_SCRATCH: .* cannot be created: Not a"):
        scratch.make("mine")
    monkeypatch.delenv(scratch.VARIABLE)
    monkeypatch.delenv(scratch.LOCAL_DIRS, raising=False)
    assert scratch.make("mine") == ()
    monkeypatch.setenv(scratch.LOCAL_DIRS, f"{tmp_path / 'file'},{tmp_path / 'file'}")
    with pytest.raises(CannotStartHere, match=r"SPARK_LOCAL_DIRS: .* cannot be created: Not a"):
        scratch.make("mine")


def test_c8_where_spark_would_keep_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C8: jrs keeps them on the same disks, but for one that has failed, and removes them however
    the attempt ends."""
    failed = tmp_path / "failed"
    failed.touch()
    monkeypatch.delenv(scratch.VARIABLE, raising=False)
    monkeypatch.delenv(scratch.LOCAL_DIRS, raising=False)
    assert scratch.place_without_job() == {scratch.VARIABLE: str(storage_place.work_folder())}

    monkeypatch.setenv(scratch.LOCAL_DIRS, f"{failed},{tmp_path / 'a'},{tmp_path / 'b'}")
    places = [tmp_path / name / f"jrs-scratch-{os.getuid()}" for name in "ab"]
    assert scratch.make("mine") == tuple(place / "attempt-mine" for place in places)
    assert scratch.place_without_job() == {}
    scratch.remove("mine", os.environ)
    assert [os.listdir(place) for place in places] == [[], []]


@pytest.mark.parametrize("mode", [0o775, 0o2770, 0o777])
def test_c8_an_own_place_that_others_can_change_is_made_private(place: Path, mode: int) -> None:
    """C8: what mounts a volume may give a group the right to write in all of its folders."""
    (place / "attempt-dead").mkdir(parents=True)
    place.chmod(mode)

    assert scratch.make("mine") == (place / "attempt-mine",)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert os.listdir(place) == ["attempt-mine"]


@pytest.mark.parametrize("kind", ["of-another-user", "link", "without-modes"])
def test_c8_a_place_that_others_can_change(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """C8: anybody may make a folder or a link of that name in /var/tmp. Nothing is kept there, and
    nothing that a link leads to is changed or removed."""
    theirs = tmp_path / "theirs"
    (theirs / "attempt-log").mkdir(parents=True)
    theirs.chmod(0o777)
    if kind == "link":
        place.symlink_to(theirs)
    else:
        theirs.rename(place)
    if kind == "of-another-user":
        user = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
        place.rename(place.with_name(f"jrs-scratch-{user + 1}"))
        place = place.with_name(f"jrs-scratch-{user + 1}")
    if kind == "without-modes":
        monkeypatch.setattr(os, "fchmod", lambda folder, mode: None)

    with pytest.raises(CannotStartHere, match="can be changed by others; remove it"):
        scratch.make("mine")
    assert os.listdir(place) == ["attempt-log"]
    assert stat.S_IMODE(place.stat().st_mode) == 0o777


def test_c8_what_others_have_there_stays(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C8: the place may be the folder that the work folder of this host is in by default."""
    work = tmp_path / f"jrs-{os.getuid()}"
    monkeypatch.setenv(storage_place.WORK, str(work))
    staged = storage_place.place_of("s3://bucket/prefix").root / "default" / "job" / "e1"
    staged.mkdir(parents=True)
    (place / "of-a-user").mkdir(parents=True)

    scratch.make("mine")
    assert staged.exists()
    assert sorted(os.listdir(place)) == ["attempt-mine", "of-a-user"]
