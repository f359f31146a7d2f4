"""What Spark is told outside of a job decides which master a session has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import CannotStartHere, InvalidInput
from jrs.records.settings import JobSettings
from jrs.recovery.spark import doctor, host_configuration
from jrs.recovery.spark.host_configuration import (
    is_local,
    master_of,
    refuse_connect,
    settings_found,
)

SUBMIT = "PYSPARK_SUBMIT_ARGS"
REAL_HOME = host_configuration.spark_home


@pytest.fixture(autouse=True)
def home_without_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of this machine may have a configuration."""
    monkeypatch.setattr(host_configuration, "spark_home", lambda: tmp_path / "home")


@pytest.mark.parametrize(
    ("environment", "master"),
    [
        ({}, "local[*]"),
        ({"MASTER": "spark://m:7077"}, "spark://m:7077"),
        ({SUBMIT: "--master spark://s:7077 pyspark-shell"}, "spark://s:7077"),
        ({SUBMIT: "--master=yarn --verbose pyspark-shell"}, "yarn"),
        ({SUBMIT: "--conf spark.master=k8s://h:443 pyspark-shell"}, "k8s://h:443"),
        ({SUBMIT: "-c spark.master=yarn --master local[2] pyspark-shell"}, "local[2]"),
        ({SUBMIT: "--driver-memory 2g pyspark-shell", "MASTER": "local[4]"}, "local[4]"),
    ],
)
def test_c5_the_master_of_the_submit_arguments(environment: dict[str, str], master: str) -> None:
    """C5: a cluster that PYSPARK_SUBMIT_ARGS names is no local master."""
    found = settings_found(environment)

    assert master_of({}, found) == master
    assert master_of({"spark.master": "local[1]"}, found) == "local[1]"
    assert is_local(master) is master.startswith("local")


def test_files_give_way_to_the_submit_arguments(tmp_path: Path) -> None:
    """The later wins: MASTER, the file of defaults, --conf, --master."""
    (tmp_path / "spark-defaults.conf").write_text("spark.master spark://d:7077\nspark.a 1\n")
    (tmp_path / "other.conf").write_text("spark.a 2\n")
    place = {"SPARK_CONF_DIR": str(tmp_path), "MASTER": "yarn"}
    other = f"--properties-file {tmp_path}/other.conf pyspark-shell"

    assert settings_found(place) == {"spark.master": "spark://d:7077", "spark.a": "1"}
    assert settings_found({**place, SUBMIT: "--conf spark.a=3 pyspark-shell"})["spark.a"] == "3"
    assert settings_found({**place, SUBMIT: other}) == {"spark.master": "yarn", "spark.a": "2"}


def test_the_defaults_in_the_home_of_pyspark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark looks there, too, without SPARK_HOME: a cluster that it names is no local master."""
    find_spark_home = pytest.importorskip("pyspark.find_spark_home")
    monkeypatch.setattr(find_spark_home, "_find_spark_home", lambda: str(tmp_path))
    monkeypatch.setattr(host_configuration, "spark_home", REAL_HOME)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master spark://d:7077\n")
    (tmp_path / "spark-defaults.conf").write_text("spark.master yarn\n")

    assert settings_found({}) == {"spark.master": "spark://d:7077"}
    assert settings_found({"SPARK_CONF_DIR": str(tmp_path)}) == {"spark.master": "yarn"}


def test_a_file_of_defaults_in_another_encoding(tmp_path: Path) -> None:
    """Spark reads it, too."""
    text = "# von J\xfcrgen\nspark.a 1\n"
    (tmp_path / "spark-defaults.conf").write_bytes(text.encode("latin-1"))

    assert settings_found({"SPARK_CONF_DIR": str(tmp_path)}) == {"spark.a": "1"}


@pytest.mark.parametrize("call", ["stat", "open"])
def test_a_file_of_defaults_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It is the host's: the job may start on another one, and the doctor says so in a line."""
    path = tmp_path / "spark-defaults.conf"
    path.touch()

    def refuse(self: Path, *how: Any, **more: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(Path, call, refuse)
    with pytest.raises(CannotStartHere, match=f"{path} cannot be read: Permission denied"):
        settings_found({"SPARK_CONF_DIR": str(tmp_path)})
    (found,) = doctor._configuration(JobSettings())
    assert (found.what, found.remedy) == ("session", doctor.NO_SESSION)


@pytest.mark.parametrize("arguments", ["--master", "--conf 'spark.a=1"])
def test_arguments_that_cannot_be_read(arguments: str) -> None:
    """They are the host's: the job may start on another one."""
    with pytest.raises(CannotStartHere, match="PYSPARK_SUBMIT_ARGS cannot be read: "):
        settings_found({SUBMIT: arguments})


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.remote": "sc://h"},
        {"spark.master": "sc://h:15002"},
        {"spark.api.mode": "connect"},
    ],
)
def test_c7_spark_connect_is_refused(conf: dict[str, str]) -> None:
    """C7: by name; what a job asks for is its failure, what a host has is not."""
    with pytest.raises(InvalidInput, match="is Spark Connect: jrs needs a driver of its own"):
        refuse_connect(conf, {}, {})
    with pytest.raises(CannotStartHere, match=r"which is Spark Connect: .*: remove it"):
        refuse_connect({}, conf, {})
    refuse_connect({"spark.master": "local", "spark.api.mode": "classic"}, {}, {})


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE"])
def test_c7_a_host_of_spark_connect(name: str) -> None:
    with pytest.raises(CannotStartHere, match=rf"{name} is set on this host, .*: unset it"):
        refuse_connect({}, {}, {name: "sc://h"})
    refuse_connect({}, {}, {"SPARK_API_MODE": "classic"})
    with pytest.raises(CannotStartHere, match=r"has spark\.remote=sc://h, which is Spark Connect"):
        refuse_connect({}, settings_found({SUBMIT: "--remote sc://h pyspark-shell"}), {})
