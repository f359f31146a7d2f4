"""Attempts with a JVM: how they are canceled, how they die, what their session is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import CannotStartHere
from jrs.records.history import HistoryKind
from jrs.records.model import JobStatus
from jrs.records.settings import JobSettings
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.spark import session
from jrs.recovery.spark.configuration import require_java
from jrs.store import history
from jrs.store.jobs import JobCatalog
from jrs.testing.masters import Masters
from tests.recovery.lead import Lead

from .conftest import Cluster
from .support import BOUND, left_over, marked, watchdogs


def test_cancel_ends_jvm_and_workers(cluster: Cluster) -> None:
    """A canceled job leaves no process: neither Python, nor JVM, nor Python workers."""
    cluster.masters.start("m1")
    cluster.submit("busy", "with_python_workers")
    backend = cluster.masters.backend

    def running() -> bool:
        lines = marked(backend, "busy").values()
        return all(
            any(part in line for line in lines)
            for part in ("jrs.recovery.attempt_main", "SparkSubmit", "pyspark.daemon")
        )

    cluster.masters.until(running, "Python workers run", BOUND)
    JobCatalog(backend).cancel("busy")
    result = cluster.results.wait("busy", BOUND)
    cluster.until_clean("busy")

    assert result.status is JobStatus.CANCELED
    assert marked(backend, "busy") == {}
    assert left_over(backend, cluster.storage, "busy") == []
    cluster.masters.until(lambda: not watchdogs(backend), "no watchdog is left")


def test_functions_of_a_file_reach_the_workers(cluster: Cluster) -> None:
    """What a job's file defines can be used in Spark's workers, which cannot import it."""
    cluster.masters.start("m1")
    cluster.submit("sends", "sends_functions")
    result = cluster.results.wait("sends", BOUND)

    assert result.payload == [[2, 4], [2, 4]], result.failure
    (spark,) = [one.spark for one in result.attempts]
    assert spark is not None
    assert spark.id.startswith("local-")
    events = history.read(cluster.masters.backend, "sends")
    (ended,) = [one for one in events if one.known_kind is HistoryKind.ENDED]
    assert ended.about is not None
    assert ended.about["spark"] == spark.id


def test_workers_run_this_python_with_compiled_modules(cluster: Cluster) -> None:
    """A worker imports pyspark where the driver has found it, and not from Spark's archive."""
    cluster.masters.start("m1")
    cluster.submit("asks", "asks_a_worker")
    worker, driver = cluster.results.wait("asks", BOUND).payload

    assert worker == driver
    assert not Path(driver[1]).parent.is_file()


def test_a_jvm_that_dies_is_a_death(cluster: Cluster) -> None:
    """A job whose JVM is killed is started again, though its function only saw an exception."""
    cluster.masters.start("m1")
    cluster.submit("unlucky", "loses_its_jvm")
    result = cluster.results.wait("unlucky", BOUND)
    cluster.until_clean("unlucky")
    died = [event.message for event in cluster.masters.events if event.kind == "died"]

    assert (result.status, result.payload, result.attempt) == (JobStatus.FINISHED, 7, 2)
    assert len(died) == 1
    assert "the JVM of its SparkSession died" in died[0]


def test_an_error_of_the_job_is_none(cluster: Cluster) -> None:
    """A job whose query is wrong is FAILED at once, with Spark's words: its JVM is well."""
    cluster.masters.start("m1")
    cluster.submit("wrong", "fails_in_spark")
    result = cluster.results.wait("wrong", BOUND)

    assert (result.status, result.attempt) == (JobStatus.FAILED, 1)
    assert result.failure is not None
    assert result.failure.kind == "exception"
    assert "PATH_NOT_FOUND" in result.failure.message


def test_the_session_is_the_jobs_own(new_cluster: Callable[[str], Cluster], tmp_path: Path) -> None:
    """A job's session is named after it, grouped and tagged, keeps its temporary files in the job's
    staging, and lets spark-defaults.conf have its say.
    """
    (tmp_path / "spark-defaults.conf").write_text(
        "# of the site\nspark.ui.showConsoleProgress true\n"
        "spark.driver.defaultJavaOptions -Dsite=ours\n"
    )
    cluster = new_cluster("a folder with spaces")
    folder = tmp_path / "a folder with spaces"
    masters = Masters(
        (folder / "store").as_uri(),
        storage=folder / "files",
        environment={"SPARK_CONF_DIR": str(tmp_path)},
    )
    with masters:
        masters.start("m1")
        cluster.submit("named", "describes_its_session")
        result = cluster.results.wait("named", BOUND)
        scratch = str(cluster.storage.folder("named") / "e1" / ".scratch.1")

        assert result.payload == {
            "name": "jrs named",
            "group": "jrs-named",
            "tags": ["jrs-named"],
            "ui": "false",
            "progress": "true",
            "partitions": "2",
            "temporary": scratch,
            "java": [scratch, "ours"],
            "same": True,
            "imported": [],
            "array": [1, 2],
        }, result.failure


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that asks for Spark where there is none gets one line that says how to get it."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    nothing: Any = SimpleNamespace()

    with pytest.raises(CannotStartHere, match=r"pip install 'jrs\[spark\]'"):
        session.session_of(nothing)


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None) -> None:
    """Where there is no Java, one line says how to get it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home:
        monkeypatch.setenv("JAVA_HOME", home)

    with pytest.raises(CannotStartHere, match="apt-get install openjdk-17-jre-headless") as error:
        require_java()

    assert "\n" not in str(error.value)


def test_without_the_clusters_master(backend: Backend, tmp_path: Path) -> None:
    """It may be reached from another host, or later: that fails no job, and starts no JVM."""
    from pyspark import SparkContext

    lead, gateway = Lead(backend, tmp_path / "files"), SparkContext._gateway
    context = lead.context()
    settings = JobSettings(conf={"spark.master": "spark://127.0.0.1:1"})
    context = attrs.evolve(context, spec=attrs.evolve(context.spec, settings=settings))
    with pytest.raises(CannotStartHere, match=r"spark://127\.0\.0\.1:1 cannot be reached from"):
        session.session_of(context)

    lead.leadership.resign()
    assert SparkContext._gateway is gateway


def test_scratch_of_dead_attempts_is_removed(tmp_path: Path) -> None:
    """An attempt finds only its own folder for temporary files; those before it are gone."""
    storage = JobStorage(tmp_path, "test")
    storage.take_over("job", 1)
    first = storage.scratch("job", 1, 1)
    (first / "blocks").touch()
    second = storage.scratch("job", 1, 2)

    assert not first.exists()
    assert second.is_dir()
    assert storage.scratch("job", 1, 2) == second
