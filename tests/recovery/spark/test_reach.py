"""Whether the master of a Spark cluster can be reached, before a JVM is started for it."""

from __future__ import annotations

import socket

import pytest

from jrs.contract.errors import CannotStartHere
from jrs.recovery.spark import reach


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
    assert reach.places(master) == places


def test_one_master_of_several_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reach.require_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}")


@pytest.mark.parametrize("master", ["yarn", "local[*]", "spark://h:port"])
def test_what_spark_has_to_judge(master: str) -> None:
    reach.require_reachable(master)


def test_no_master_answers() -> None:
    with pytest.raises(CannotStartHere, match=r"spark://127.0.0.1:1 .* 127.0.0.1:1: Connection"):
        reach.require_reachable("spark://127.0.0.1:1")
