"""``jrs doctor --spark``: a real session, its executors, and what is wrong with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest

from jrs.contract.backend import Diagnostic
from jrs.testing.servers import standalone
from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.fixtures import missing
from jrs.testing.servers.namespaces import Namespaces

from .support import BOUND

ROOT = Path(__file__).parents[2]
LONG = "--timeout", "10m"
"""No executor comes too late, however busy this machine is."""
CLUSTER, DRIVER = 0, 1
"""The hosts of Spark's cluster and of the doctor."""


@attrs.frozen
class Told:
    """What the doctor has told."""

    status: int
    found: dict[str, Diagnostic]

    @property
    def wrong(self) -> dict[str, str]:
        return {name: one.detail for name, one in self.found.items() if one.remedy is not None}


def doctor(*options: object, prefix: Sequence[str] = (), **environment: str) -> Told:
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "jrs", "doctor", "--spark", "--json", *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "", **environment},  # Executors would get it.
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.stderr == ""
    found = [Diagnostic(**one) for one in json.loads(done.stdout)]
    return Told(done.returncode, {one.what: one for one in found})


def test_without_a_cluster(tmp_path: Path) -> None:
    """On this host alone: all is fit, and nothing is left behind."""
    logs = tmp_path / "events"
    logs.mkdir()
    told = doctor(
        "--conf", "spark.master=local[2]", "--storage", tmp_path / "new" / "files",
        "--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={logs}",
        *LONG,
    )  # fmt: skip

    assert (told.status, told.wrong) == (0, {})
    assert list(told.found) == [
        "java", "pyspark", "event log", "master", "executors", "driver", "scratch", "python",
        "packages", "sink", "files", "links",
    ]  # fmt: skip
    assert told.found["master"].detail.startswith("local[2], as local-")
    assert told.found["executors"].detail == "threads of the driver, on 2 cores"
    assert str(tmp_path / "new" / "files") in told.found["files"].detail
    assert list(tmp_path.iterdir()) == [logs]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--conf", "spark.master=spark://127.0.0.1:1"], {"master": "127.0.0.1:1: Connection"}),
        (["--conf", "spark.master=nonsense"], {"session": "Master must either be yarn or start"}),
        (
            ["--conf", "spark.driver.memory=much"],
            {"session": "Invalid maximum heap size"},
        ),
        (["--conf", "spark.remote=sc://x"], {"session": "Spark Connect"}),
        (["--python", "/no/python"], {"start": "/no/python: not found"}),
        (["--secret", "PASSWORD=env:NO_SUCH"], {"start": "NO_SUCH"}),
        (["--storage", "/proc/jrs"], {"files": "/proc/jrs"}),
        (
            ["--conf", "spark.eventLog.enabled=true", "--conf", "spark.eventLog.dir=file:/no/logs"],
            {"event log": "there is no folder /no/logs"},
        ),
    ],
    ids=["unreachable", "nonsense", "memory", "connect", "python", "secret", "storage", "log"],
)
def test_what_is_wrong_is_named(options: list[str], wrong: dict[str, str]) -> None:
    """One line for each, with a remedy; no traceback."""
    told = doctor("--conf", "spark.ui.enabled=false", *options)

    assert told.status == 1
    assert told.wrong.keys() == wrong.keys()
    for name, text in wrong.items():
        assert text in told.wrong[name]


def test_no_java() -> None:
    told = doctor(JAVA_HOME="/no/java")

    assert (told.status, list(told.wrong)) == (1, ["java"])
    assert "/no/java" in told.wrong["java"]


@pytest.fixture
def cluster() -> Iterator[tuple[standalone.Standalone, tuple[str, ...]]]:
    """A cluster of two workers of another user without jrs; what runs a command on the driver's
    host."""
    with ExitStack() as stack:
        try:
            place = Namespaces(1, clients=1)
            stack.callback(place.close)
            hosts = place.hosts
            spark = stack.enter_context(
                standalone.standalone(hosts.address(CLUSTER), hosts.command(CLUSTER))
            )
        except ServerMissing as error:
            missing(error)
        ip = ("env", f"SPARK_LOCAL_IP={hosts.address(DRIVER)}")
        yield spark, hosts.command(DRIVER, *ip)


def test_on_a_cluster(
    cluster: tuple[standalone.Standalone, tuple[str, ...]], tmp_path: Path
) -> None:
    """Executors of another user, without jrs: fit with a shared storage, and unfit with one that
    they cannot use, or without executors."""
    spark, prefix = cluster
    conf = "--conf", f"spark.master={spark.master}", "--conf", "spark.cores.max=2"
    told = doctor(*conf, *LONG, "--storage", spark.storage, prefix=prefix)

    assert (told.status, told.wrong) == (0, {})
    assert told.found["master"].detail.startswith(f"{spark.master}, as app-")
    assert told.found["executors"].detail == "2 executors with 2 cores"
    assert told.found["sink"].detail.endswith("which have no jrs")
    assert f"of user {standalone.USER}," in told.found["files"].detail
    assert list(spark.storage.iterdir()) == []

    alone = doctor(*conf, *LONG, "--storage", tmp_path / "files", prefix=prefix)
    assert (alone.status, list(alone.wrong)) == (1, ["files"])
    assert f"as user {standalone.USER}: PermissionError" in alone.wrong["files"]

    unknown = doctor(*conf, *LONG, prefix=prefix)
    assert (unknown.status, list(unknown.wrong)) == (1, ["files"])
    assert "it is not known where jobs keep their files" in unknown.wrong["files"]

    greedy = "--conf", "spark.executor.memory=900g"
    none = doctor(*conf, *greedy, "--timeout", "10s", "--storage", spark.storage, prefix=prefix)
    assert (none.status, list(none.wrong)) == (1, ["executors"])
    assert f"{spark.master} gave no executor in 10 s" in none.wrong["executors"]
