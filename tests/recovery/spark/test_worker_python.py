"""Which Python Spark's workers run, as far as that needs no JVM."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from jrs.recovery.spark import worker_python

ASK = """
import json, py4j, pyspark, sys
print(json.dumps([sys.executable, pyspark.__file__, py4j.__file__, sys.path, sys.argv]))
"""
HOME = Path(pyspark.__file__).parent
ARCHIVES = [str(path) for path in sorted((HOME / "python" / "lib").glob("*.zip"))]


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def named(scratch: Path | None, *, on_host: bool = True, named: bool = False) -> str | None:
    """Return the Python that a session names while it starts; afterwards nothing is named."""
    with worker_python.this_one(scratch, on_host=on_host, named=named):
        found = os.environ.get("PYSPARK_PYTHON")
    assert "PYSPARK_PYTHON" not in os.environ
    return found


def test_workers_find_compiled_modules(tmp_path: Path) -> None:
    """They lose nothing but Spark's archives, wherever the folders are and whatever their names."""
    scratch = tmp_path / "it's a * folder"
    scratch.mkdir()
    script = named(scratch)
    assert script is not None
    others = [str(tmp_path / "a job's own"), str(tmp_path / "*.zip")]
    path = [ARCHIVES[1], ARCHIVES[0], *others]
    said = subprocess.run(
        [script, "-c", ASK, "a b", "*"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    python, spark, py4j, search, arguments = json.loads(said.stdout)

    assert len(ARCHIVES) == 2
    assert python == sys.executable
    assert Path(spark).parent == HOME
    assert Path(py4j).is_file()
    assert search[1:3] == others
    assert arguments == ["-c", "a b", "*"]


def test_without_a_folder(tmp_path: Path) -> None:
    """Without a script, the workers are this Python as it is."""
    assert named(None) == sys.executable
    assert named(tmp_path / "missing") == sys.executable


def test_nothing_can_be_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be executed, as on a mount with noexec, there is no script."""
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert named(tmp_path) == sys.executable


def test_another_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's archive counts if the driver's pyspark is not that of Spark's home."""
    for folder in ("bin", "jars"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    assert named(tmp_path) == sys.executable


def test_a_pyspark_that_only_this_process_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code may have added a folder to ``sys.path``: workers do not look there."""
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.delenv("PYTHONPATH", raising=False)

    assert named(tmp_path) == sys.executable

    monkeypatch.setenv("PYTHONPATH", str(HOME.parent))

    assert named(tmp_path) == str(tmp_path / "python")


def test_what_the_user_names_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Spark's configuration or by the environment; and a cluster has its own names."""
    assert named(tmp_path, named=True) is None
    assert named(tmp_path, on_host=False) is None

    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    with worker_python.this_one(tmp_path, on_host=True, named=False):
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


def test_the_jvm_of_a_clusters_driver_finds_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts some workers here, under the name that the cluster's hosts know their Python by."""
    monkeypatch.setenv("PATH", os.defpath)
    with worker_python.this_one(tmp_path, on_host=False, named=False):
        found = shutil.which("python3")
    assert os.environ["PATH"] == os.defpath

    assert found == str(Path(sys.executable).parent / "python3")
