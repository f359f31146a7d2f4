"""Whether the master of a Spark cluster can be reached, before a JVM is started for it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NoReturn

import pytest

from jrs.contract.errors import CannotStartHere
from jrs.recovery.spark import cluster_reach, configuration, prepared, session
from tests.recovery.lead import Lead
from tests.recovery.support import FaultyMemory


@pytest.mark.parametrize(
    ("master", "places"),
    [
        ("local[*]", []),
        ("yarn", []),
        ("spark://h:7077", [("h", 7077)]),
        ("spark://h1:7077,h2:7078", [("h1", 7077), ("h2", 7078)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("k8s://https://api:6443", [("api", 6443)]),
        ("k8s://https://api", []),
        ("spark://h:port", []),
        ("spark://", []),
    ],
)
def test_places_of_a_master(master: str, places: list[tuple[str, int]]) -> None:
    assert cluster_reach.places(master) == places


def test_one_master_of_several_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        cluster_reach.require_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}")


@pytest.mark.parametrize("master", ["yarn", "local[*]", "spark://h:port"])
def test_what_spark_has_to_judge(master: str) -> None:
    cluster_reach.require_reachable(master)


def test_no_master_answers() -> None:
    with pytest.raises(CannotStartHere, match=r"spark://127.0.0.1:1 .* 127.0.0.1:1: Connection"):
        cluster_reach.require_reachable("spark://127.0.0.1:1")


GIVEN_UP = [
    "java.lang.IllegalStateException: Spark context stopped while waiting for backend",
    "org.apache.spark.SparkException: All masters are unresponsive! Giving up.",
]


@pytest.mark.parametrize("said", GIVEN_UP)
def test_a_master_that_fails_over_while_a_session_starts(
    memory: FaultyMemory, tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby listens, and registers nobody. The job waits for the cluster, and does not fail."""

    def gives_up(*args: object, **how: object) -> NoReturn:
        raise RuntimeError(f"An error occurred while calling None.JavaSparkContext: {said}")

    monkeypatch.setattr(prepared, "take", lambda conf, found: None)
    monkeypatch.setattr(configuration, "require_java", lambda: None)
    monkeypatch.setattr(configuration, "start", gives_up)
    context = Lead(memory, tmp_path / "jobs").context()
    with socket.create_server(("127.0.0.1", 0)) as standby:
        master = f"spark://127.0.0.1:{standby.getsockname()[1]}"
        with pytest.raises(CannotStartHere, match=f"{master} has registered no application"):
            session._started(context, {"spark.master": master})


@pytest.mark.parametrize(
    ("master", "said"),
    [("spark://h:7077", "spark.executor.memory is no number"), ("local[2]", GIVEN_UP[0])],
)
def test_what_is_wrong_with_the_job(master: str, said: str) -> None:
    with pytest.raises(RuntimeError, match=said), cluster_reach.starting(master):
        raise RuntimeError(said)


def test_an_error_without_a_text() -> None:
    """That of a JVM which has died stays what it is."""

    class Gone(Exception):
        def __str__(self) -> str:
            raise ConnectionError

    with pytest.raises(Gone), cluster_reach.starting("spark://h:7077"):
        raise Gone
