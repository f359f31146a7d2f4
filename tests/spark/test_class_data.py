"""The archive of Spark's classes: what makes it, what uses it, and how jobs run without it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jrs.contract.errors import InvalidInput, Unavailable
from jrs.recovery.spark import class_data, warm_up
from jrs.testing.masters import Masters
from jrs.testing.processes import command_lines

from .conftest import Cluster
from .support import BOUND, until

SHARED = "source: shared objects file (top)"
"""What the JVM's log says of a class from an archive that is not Java's own."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for archives."""
    path = tmp_path / "class data"
    monkeypatch.setenv(class_data.FOLDER, str(path))
    return path


def makers() -> list[str]:
    """Return the command lines of the processes that make archives."""
    wanted = (class_data.__name__, "ArchiveClassesAtExit")
    return [line for line in command_lines().values() if any(word in line for word in wanted)]


def test_jobs_share_classes(cluster: Cluster, tmp_path: Path) -> None:
    """The JVM of a job takes most of its classes from the archive, once there is one."""
    archive = class_data.make()
    log = tmp_path / "classes"
    cluster.masters.start("m")
    cluster.submit("shares", "logs_classes", log=str(log))
    cluster.until_clean("shares")
    lines = log.read_text().splitlines()

    assert class_data.make() == archive
    assert sum(SHARED in line for line in lines) > len(lines) / 4


def test_word_is_left_once(folder: Path) -> None:
    """A session that finds no archive starts without one, and asks for it."""
    assert class_data.options() == ""
    archive = class_data.place()
    assert archive is not None
    assert [path.name for path in folder.iterdir()] == [archive.with_suffix(".wanted").name]

    archive.write_bytes(b"")
    assert class_data.options().startswith(f'"-XX:SharedArchiveFile={archive}" ')


def test_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wants no archives gets none."""
    monkeypatch.setenv(class_data.FOLDER, "off")

    assert class_data.options() == ""
    assert not folder.exists()
    with pytest.raises(InvalidInput, match="nothing to prepare"):
        class_data.make()


def test_a_configuration_folder_with_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Java shares no classes behind it: that is said at once, and nothing is asked for in vain."""
    before = class_data.place()
    conf = tmp_path / "conf"
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    assert class_data.options() == ""
    assert class_data.place() not in (None, before)
    assert [path.suffix for path in folder.iterdir()] == [".wanted"]

    conf.mkdir()
    (conf / "spark-defaults.conf").touch()
    for path in folder.iterdir():
        path.unlink()

    assert class_data.options() == ""
    assert list(folder.iterdir()) == []
    with pytest.raises(InvalidInput, match=f"nothing to prepare: .* {conf} holds files"):
        class_data.make()


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    """Where nothing can be kept, Spark starts as it would without jrs."""
    folder.write_text("a file")

    assert class_data.options() == ""
    with pytest.raises(Unavailable, match="class data"):
        class_data.make()


def test_a_folder_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing may be read, either."""

    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", denied)

    assert class_data.options() == ""


def test_a_java_that_makes_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried once, and said why; sessions do not ask for it again."""
    java = folder.parent / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))

    with pytest.raises(Unavailable, match=r"could not be made: .*JAVA_GATEWAY_EXITED"):
        class_data.make()
    assert class_data.options() == ""
    assert sorted(path.suffix for path in folder.iterdir()) == [".failed", ".lock"]


def test_what_fails_in_the_jvm_is_said(folder: Path) -> None:
    """The reason is that of the JVM, which is gone when the reason is told."""
    archive = class_data.place()
    assert archive is not None
    folder.mkdir()
    archive.with_suffix(".wanted").touch()
    code = f"""
from {class_data.__name__} import main
import {warm_up.__name__} as warm_up
warm_up.work_like_a_job = lambda session, folder: session._jvm.java.io.FileReader("none")
main()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as maker:
        assert maker.wait(BOUND) == 0

    assert "FileNotFoundException" in archive.with_suffix(".failed").read_text()


def test_prepare_says_what_is_wrong(folder: Path) -> None:
    """`jrs prepare` has one line and exit code 2 for what it cannot do."""
    folder.write_text("a file")
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "prepare"], capture_output=True, text=True, timeout=BOUND
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.soak
def test_a_master_makes_it(folder: Path, new_cluster: Callable[..., Cluster]) -> None:
    """U13: a master with --prepare makes what a session has asked for; killed over it, it leaves no
    process, and the next master begins again.
    """
    cluster = new_cluster("cluster", "--prepare")
    cluster.masters.start("first")
    cluster.submit("asks", "sends_functions")
    cluster.until_clean("asks")
    archive = class_data.place()
    assert archive is not None
    until(lambda: any("ArchiveClassesAtExit" in line for line in makers()), "it is being made")
    cluster.masters.leader().kill()
    until(lambda: not makers(), "its maker has ended with it")
    assert not archive.exists()

    made: Masters = cluster.masters
    made.start("second")
    made.until(archive.is_file, "the archive is made", 600.0)
    until(lambda: not makers(), "its maker has ended")
    assert sorted(path.suffix for path in folder.iterdir()) == [".jsa", ".lock"]
