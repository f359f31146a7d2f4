"""Reading state for a snapshot, without a JVM."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jrs.contract.errors import InvalidInput, Unavailable
from jrs.recovery.spark import state_export

pyspark_sql = pytest.importorskip("pyspark.sql")


class Builder:
    """Notes what a session would be started with, and starts none."""

    def __init__(self, why: str) -> None:
        self.why = why
        self.conf: dict[str, str] = {}

    def appName(self, name: str) -> Builder:
        return self

    def config(self, *, map: dict[str, str]) -> Builder:
        self.conf = map
        return self

    def getOrCreate(self) -> Any:
        raise RuntimeError(f"java.io.{self.why}\n\tat java.base")


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        ("BindException: Cannot assign requested address", InvalidInput),
        ("IOException: No space left on device", Unavailable),
    ],
)
def test_a_session_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, kind: type[Exception]
) -> None:
    """Never on a cluster that the host's configuration names: the files are here, and executors
    could not reach the driver. That it cannot start is said in a line, and whether to try again."""
    builder = Builder(why)
    monkeypatch.setattr(pyspark_sql, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setattr(state_export, "require_java", lambda: None)
    (tmp_path / "state").mkdir()

    with pytest.raises(kind, match=f"for a snapshot: {why}"):
        state_export.export_state(tmp_path, 0, tmp_path / "exported")
    assert builder.conf["spark.master"] == "local[*]"
