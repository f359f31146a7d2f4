"""What `jrs doctor --spark` says, without a JVM."""

from __future__ import annotations

import os
import re
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from jrs.contract.backend import Diagnostic
from jrs.recovery.spark import cluster, doctor, error_reasons
from tests.small_disk import fill, small_disk

README = Path(__file__).parents[3] / "README.md"
pyspark = pytest.importorskip("pyspark")


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that can be any Java."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return program


@pytest.mark.parametrize(
    ("said", "detail", "fit"),
    [
        ('openjdk version "17.0.15" 2025-04-15', '"17.0.15"', True),
        ('openjdk version "21" 2023-09-19', '"21"', True),
        ('java version "1.8.0_392"', '"1.8.0_392"', False),
        ("whatever", "does not tell its version: whatever", False),
    ],
)
def test_java(java: Path, said: str, detail: str, fit: bool) -> None:
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    found = doctor._java()

    assert detail in found.detail
    assert (found.remedy is None) is fit


def test_no_java(java: Path) -> None:
    found = doctor._java()

    assert f"JAVA_HOME ({java.parents[1]}) holds no bin/java" in found.detail
    assert found.remedy is not None


@pytest.mark.parametrize(
    ("version", "fit", "said"),
    [
        ("4.0.1", False, ""),
        ("4.1.0", True, ""),
        ("4.3.0", True, ""),
        ("5.0.0.dev1", True, "newest"),
    ],
)
def test_pyspark(monkeypatch: pytest.MonkeyPatch, version: str, fit: bool, said: str) -> None:
    """An older one is refused; a newer one is named as such."""
    monkeypatch.setattr(metadata, "version", lambda name: version)
    found = doctor._pyspark()

    assert (found.remedy is None, said in found.detail) == (fit, True)


@pytest.mark.parametrize("lacking", ["pyspark", "pyarrow"])
def test_without_spark(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    """One line that says how to install it."""

    def version(name: str) -> str:
        if name == lacking:
            raise metadata.PackageNotFoundError(name)
        return "4.3.0"

    monkeypatch.setattr(metadata, "version", version)
    assert doctor._pyspark().remedy == "pip install 'jrs[spark]'"


def test_the_tested_releases_are_those_of_the_readme() -> None:
    (named,) = re.findall(r"PySpark (4\.\d), (4\.\d)\s+or (4\.\d)", README.read_text())

    assert named == doctor.TESTED


@pytest.mark.parametrize(
    ("conf", "wrong"),
    [
        ({"spark.eventLog.dir": "/no/logs"}, []),
        ({"spark.eventLog.enabled": "true", "spark.eventLog.dir": "{}"}, []),
        ({"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file:{}"}, []),
        ({"spark.eventLog.enabled": "true", "spark.eventLog.dir": "hdfs://h/logs"}, []),
        ({"spark.eventLog.enabled": "true", "spark.eventLog.dir": "/no/logs"}, ["event log"]),
        ({"spark.ui.store.path": "/no/ui"}, ["ui"]),
    ],
)
def test_folders_of_spark(tmp_path: Path, conf: dict[str, str], wrong: list[str]) -> None:
    given = {key: value.format(tmp_path) for key, value in conf.items()}
    found = list(doctor._folders(given))

    assert [one.what for one in found if one.remedy is not None] == wrong


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[PYTHON_VERSION_MISMATCH] Python 3.9", "[PYTHON_VERSION_MISMATCH] Python 3.9"),
        (
            "An error occurred while calling z:org…\n"
            ": org.apache.spark.SparkException: Job aborted\n"
            "  ModuleNotFoundError: No module named 'pyspark'\n\tat org…",
            "ModuleNotFoundError: No module named 'pyspark'",
        ),
        (
            ": org.apache.spark.SparkException: Job aborted: java.io.IOException: Cannot run "
            'program "python3"\nCaused by: java.io.IOException: error=2',
            'IOException: Cannot run program "python3"',
        ),
        (": org.apache.spark.SparkException: Job aborted", "SparkException: Job aborted"),
        ("", "ValueError"),
    ],
)
def test_the_reason_of_an_error(text: str, why: str) -> None:
    assert error_reasons.why(ValueError(text)) == why


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (
            "WARN x\nInvalid maximum heap size: -Xmxabc\nError: Could not",
            "Invalid maximum heap size",
        ),
        (
            'Exception in thread "main" org.SparkException: Master must\n\tat a.b',
            "org.SparkException",
        ),
        ("WARN x\nTraceback (most recent call last):\nValueError: no", ""),
    ],
)
def test_last_words(printed: str, said: str) -> None:
    words = error_reasons.last_words(printed)

    assert words.startswith(said)
    assert bool(words) is bool(said)


# -- files ---------------------------------------------------------------------------------------


@attrs.frozen
class FakeSession:
    """Writes a table as executors do."""

    sparkContext: None = None

    @property
    def write(self) -> FakeSession:
        return self

    def range(self, *arguments: int) -> FakeSession:
        return self

    def parquet(self, path: str) -> None:
        Path(path).mkdir()
        (Path(path) / "part-0").write_bytes(b"rows")


def files(folder: Path, **seen: Any) -> dict[str, Diagnostic]:
    from jrs.recovery.spark import probes

    mine = folder / "executor-1"
    mine.mkdir(parents=True)
    (mine / "file").write_text("x")
    one = probes.Seen(
        host="h", user="7", python="3.11.1", pyspark="4.3.0", arrow="1", has_jrs=False,
        **{"storage": "", "scratch": "", **seen},
    )  # fmt: skip
    session: Any = FakeSession()
    return {found.what: found for found in probes._files(session, folder, [one])}


def test_files_that_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with fs.protected_hardlinks, of files that the driver cannot write: that is no fault."""

    def link(*paths: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    found = files(tmp_path / "a" / "b" / "c" / "seen")

    assert all(one.remedy is None for one in found.values())
    assert "a take-over and a snapshot copy the files" in found["links"].detail
    assert not (tmp_path / "a" / "b" / "c" / "seen").exists()


def test_files_that_cannot_be_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in folders that an executor made with a umask of 0022."""

    def rename(path: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    asked = []
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(cluster, "ask", lambda context, function: asked.append(function))
    found = files(tmp_path / "a" / "b" / "c" / "seen")

    assert list(found) == ["files"]
    assert "umask 0007" in (found["files"].remedy or "")
    (remove,) = asked  # By the executors, who can.
    list(remove([]))
    assert not (tmp_path / "a" / "b" / "c" / "seen").exists()


def test_executors_that_cannot_use_the_storage(tmp_path: Path) -> None:
    found = files(tmp_path / "a" / "b" / "c" / "seen", storage="PermissionError: no")

    assert list(found) == ["files"]
    assert "an executor on h, as user 7: PermissionError: no" in found["files"].detail


def test_packages_of_executors() -> None:
    """Another release, or no pyarrow, is named with its host."""
    from jrs.recovery.spark import probes

    here = probes.Seen("h", "7", "{}.{}.9".format(*sys.version_info), pyspark.__version__, "1",
                       has_jrs=False, storage="", scratch="")  # fmt: skip

    def wrong(**changes: Any) -> list[str]:
        found = probes._packages([here, attrs.evolve(here, **changes)])
        return [one.what for one in found if one.remedy is not None]

    assert wrong() == []
    assert wrong(arrow="") == wrong(pyspark="3.5.0") == ["packages"]
    assert wrong(python="3.9.1") == ["python"]
    assert wrong(scratch="/tmp: No space left on device") == ["scratch"]


def test_an_executor_without_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its folders is tried, and an empty file proves no space."""
    from jrs.recovery.spark import probes

    (tmp_path / "driver").write_text("token")
    (tmp_path / "free").mkdir()
    with small_disk(tmp_path / "full", 1 << 20) as full:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'free'},{full}")
        fill(full, leave=8192)
        ((*_, storage, problem),) = probes._probing(str(tmp_path), "token")([])

    assert (storage, problem) == ("", f"{full}: No space left on device")


@pytest.mark.parametrize("other", [False, True], ids=["the attempt's", "of spark-env.sh"])
def test_where_the_driver_keeps_its_files(tmp_path: Path, other: bool) -> None:
    """What a file of the host's Spark names comes before what jrs gives, and is not cleaned up."""
    from jrs.recovery.spark import probes

    mine = tmp_path / "attempt"
    utils = SimpleNamespace(getConfiguredLocalDirs=lambda conf: [tmp_path if other else mine])
    apache = SimpleNamespace(spark=SimpleNamespace(util=SimpleNamespace(Utils=utils)))
    context: Any = SimpleNamespace(
        _jvm=SimpleNamespace(org=SimpleNamespace(apache=apache)),
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: None)),
        getConf=lambda: {"spark.local.dir": f"{mine}/,/more"},
    )
    mine.mkdir()
    attempt: Any = SimpleNamespace(storage=SimpleNamespace(root=Path("/jobs")))
    found = probes._scratch(attempt, context)

    assert found.detail.startswith(str(tmp_path if other else mine))
    assert (found.remedy is not None) is other
    assert not other or "spark-env.sh" in str(found.remedy)
