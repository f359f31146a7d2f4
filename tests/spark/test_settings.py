"""Spark's configuration of a job: where each key comes from, and what is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from jrs.contract.errors import InvalidInput
from jrs.records.model import JobSpec, JobStatus
from jrs.records.settings import JobSettings
from jrs.recovery.spark.job_configuration import given_by_code
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters

from .support import BOUND

JOB = Path(__file__).with_name("telling.py")
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def test_where_the_configuration_of_a_job_comes_from(tmp_path: Path) -> None:
    """U5, U17: the job's code overrides its settings, these override spark-defaults.conf, and that
    overrides jrs; a key is taken as it is; what a second call cannot change is refused."""
    home = tmp_path / "conf"
    home.mkdir()
    (home / "spark-defaults.conf").write_text(
        "spark.sql.shuffle.partitions 1\nspark.sql.autoBroadcastJoinThreshold 1\n"
        f"spark.scheduler.mode FAIR\nspark.driver.extraJavaOptions {QUICK}\n"
    )
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("in_a_zip.py", "NUMBER = 7\n")
    settings = JobSettings(
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.autoBroadcastJoinThreshold": "2",
            "spark.master": "local[1]",
        },
        py_files=(str(tmp_path / "lib.zip"),),
        env={"SPARK_CONF_DIR": str(home)},
    )
    with Masters((tmp_path / "store").as_uri()) as masters:
        masters.start("m1")
        JobCatalog(masters.backend).submit(JobSpec("job", f"{JOB}:tell", settings=settings))
        result = JobResultStore(masters.backend).wait("job", BOUND)

    assert result.status is JobStatus.FINISHED, result.failure
    assert result.payload["conf"] == {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.autoBroadcastJoinThreshold": "2",
        "spark.sql.catalog.my_cat": "org.example.Cat",
        "spark.executorEnv.X_Y": "1",
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "false",
    }
    assert result.payload["numbers"] == [7, 7]
    assert set(result.payload["refused"]) == {"other", "unknown"}
    assert "runs with spark.sql.shuffle.partitions=3, not 4" in result.payload["refused"]["other"]
    assert "jrs.spark(job, {'spark.…': …})" in result.payload["refused"]["unknown"]


@pytest.mark.parametrize(
    ("conf", "keywords", "says"),
    [
        ({"sql.shuffle.partitions": "1"}, {}, "not a key of Spark"),
        (None, {"sql_shuffle_partitions": "1"}, "not a key of Spark"),
        ({"spark.a": None}, {}, "spark.a"),
        ({1: "x"}, {}, "not a key of Spark"),
        ([("spark.a", "1")], {}, "must be a mapping"),
        ({"spark.a": "1"}, {"spark_a": "1"}, "twice"),
    ],
)
def test_what_cannot_be_spark_s_is_refused(conf: object, keywords: object, says: str) -> None:
    """U5: nothing is passed on silently, and nothing is guessed."""
    with pytest.raises(InvalidInput, match=says):
        given_by_code(conf, keywords)  # type: ignore[arg-type]


def test_values_are_texts() -> None:
    """U5: numbers and flags are written as Spark writes them."""
    given = {"spark.a": 1, "spark.b": True, "spark.c": "x"}

    assert given_by_code(given, {}) == {"spark.a": "1", "spark.b": "true", "spark.c": "x"}
