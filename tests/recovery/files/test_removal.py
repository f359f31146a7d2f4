"""Read-only folders that jobs leave: masters that are not root remove and move them, too."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jrs.records.model import StageRecord
from jrs.recovery.files import removal, transfer
from jrs.recovery.files.job_folders import JobStorage

NOBODY = 65534
NO_OTHER_USER = 77


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder in which every user may write."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def as_nobody(work: Callable[[], object]) -> None:
    """Do something in a forked child that is not root; fail if it raises."""
    child = os.fork()
    if child == 0:
        status = NO_OTHER_USER
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            status = 1
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == NO_OTHER_USER:
        pytest.skip("root cannot become another user here")
    assert status == 0


def read_only(folder: Path) -> None:
    """Make a folder as copies of one that is read-only are: nothing in it can be deleted."""
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "deep" / "file").write_text("1")
    (folder / "sub" / "file").write_text("1")
    (folder / "sub" / "deep").chmod(0o000)
    (folder / "sub").chmod(0o555)


def test_a_job_that_left_a_read_only_folder(root: Path) -> None:
    """The next leader takes the job over, and its cleanup removes all of it."""

    def work() -> None:
        storage = JobStorage(root / "storage", "c")
        storage.take_over("job", 1, staged=(), link_checkpoint=transfer.link_tree)
        read_only(storage.staging("job", 1, "load", 1))
        storage.take_over("job", 2, staged=(), link_checkpoint=transfer.link_tree)
        read_only(storage.scratch("job", 2, 1))
        storage.scratch("job", 2, 2)
        read_only(storage.staging("job", 2, "load", 1))
        storage.sweep("job")
        storage.remove_empty("job")

        assert os.listdir(storage.root) == [".trash"]
        assert os.listdir(storage.root / ".trash") == []

    as_nobody(work)


def test_the_trash_of_a_master_that_died(root: Path) -> None:
    def work() -> None:
        storage = JobStorage(root / "storage", "c")
        storage.make()
        read_only(storage.root / ".trash" / "x")
        storage.empty_trash()

        assert os.listdir(storage.root / ".trash") == []

    as_nobody(work)


def test_a_staging_folder_that_is_read_only_itself(root: Path) -> None:
    """`shutil.copytree` into it gives it the permissions of its source. It keeps them where it is
    moved to."""

    def work() -> None:
        (root / "source").mkdir()
        (root / "source").chmod(0o555)
        folder = root / "folder"
        shutil.copytree(root / "source", folder)
        (root / "other").mkdir()
        removal.rename(folder, root / "other" / "folder")

        assert stat.S_IMODE((root / "other" / "folder").stat().st_mode) == 0o555

    as_nobody(work)


def test_x3_no_link_is_followed(root: Path) -> None:
    """X3: what a link in such a folder leads to keeps its permissions and its content."""

    def work() -> None:
        (root / "other").mkdir()
        (root / "other" / "file").write_text("1")
        (root / "other").chmod(0o500)
        read_only(root / "folder")
        (root / "folder" / "link").symlink_to(root / "other")
        removal.remove(root / "folder")
        (root / "link").symlink_to(root / "other")
        removal.remove(root / "link")

        assert sorted(os.listdir(root)) == ["other"]
        assert stat.S_IMODE((root / "other").stat().st_mode) == 0o500
        assert (root / "other" / "file").read_text() == "1"

    as_nobody(work)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another user's folder")
def test_what_another_user_owns(root: Path) -> None:
    """The error names it, and does not say that an attempt still writes there."""
    storage = JobStorage(root / "storage", "c")

    def begin() -> None:
        storage.take_over("job", 1, staged=(), link_checkpoint=transfer.link_tree)
        storage.staging("job", 1, "load", 1)

    as_nobody(begin)
    read_only(storage.folder("job") / "e1" / "load.1" / "theirs")

    def take_over() -> None:
        with pytest.raises(Exception, match=r"load\.1 cannot be deleted: Permission denied"):
            storage.take_over("job", 2, staged=(), link_checkpoint=transfer.link_tree)

    as_nobody(take_over)


def test_a_read_only_output_is_published(root: Path) -> None:
    def work() -> None:
        storage = JobStorage(root / "storage", "c")
        storage.take_over("job", 1)
        staging = storage.staging("job", 1, "load", 1)
        (staging / "file").write_text("1")
        staging.chmod(0o555)
        record = StageRecord("job", "load", None, 1, 1, 0.0, 0.0, published=staging.name)
        storage.publish(record, 1)

        out = storage.published("job", "load", temporary=False)
        assert (out / "file").read_text() == "1"
        assert stat.S_IMODE(out.stat().st_mode) == 0o555

    as_nobody(work)
