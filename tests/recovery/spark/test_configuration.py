"""What a session is started with, without a JVM."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark.sql
import pytest

from jrs.recovery.spark import class_data, configuration


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """What Spark is told of its local folders: the setting, and the variable, which it prefers."""
    told = dict[str, str | None]()

    def config(conf: Any) -> Any:
        told["setting"] = conf.get("spark.local.dir")
        told["variable"] = os.environ.get("SPARK_LOCAL_DIRS")
        return SimpleNamespace(getOrCreate=lambda: None)

    builder = SimpleNamespace(config=config)
    monkeypatch.setattr(pyspark.sql, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setattr(class_data, "options", lambda: "")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/of/host")
    return told


@pytest.mark.parametrize("given", [{}, {"spark.local.dir": "/of/job"}])
def test_only_the_folders_of_jrs_replace_those_of_the_host(
    started: dict[str, str | None], tmp_path: Path, given: dict[str, str]
) -> None:
    """The host overrides what a job asks for, as Spark documents it."""
    conf = {"spark.master": "local[1]", **given}
    folders = (tmp_path / "a", tmp_path / "b")
    configuration.start(conf, {"spark.pyspark.python": "python3"}, folders, shared=False)

    ours = f"{folders[0]},{folders[1]}"
    expected = ("/of/job", "/of/host") if given else (ours, ours)
    assert (started["setting"], started["variable"]) == expected
    assert os.environ["SPARK_LOCAL_DIRS"] == "/of/host"
