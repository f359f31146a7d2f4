"""The board: Grafana's own types know each field of it, and a real Prometheus that asks real
masters has something to show in each of its panels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from jrs.testing.servers.ports import Ports
from tests.deploy.found import JRS, KIT, counted, running, status, tool
from tests.deploy.test_prometheus import is_exported, used
from tests.support import until

BOARD = KIT / "grafana" / "jrs.json"
JOB = "jrs-test"


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BOARD.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = board()["panels"]
    return found


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def test_grafana_knows_each_field() -> None:
    """Read into the types of Grafana's SDK and written again, it is what it was."""
    register_default_plugins()
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(board())))

    assert lost(board(), again) == []


def lost(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Return what the second has not, or has otherwise. It may have more: defaults."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        gone = [f"{where}/{key}" for key in ours if key not in theirs]
        return gone + [
            each for key in ours if key in theirs
            for each in lost(ours[key], theirs[key], f"{where}/{key}")
        ]  # fmt: skip
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            each for at, (one, other) in enumerate(zip(ours, theirs, strict=True))
            for each in lost(one, other, f"{where}/{at}")
        ]  # fmt: skip
    return [] if ours == theirs else [f"{where}: {ours!r} is {theirs!r}"]


def test_a_wrong_field_is_lost() -> None:
    """The test above can fail."""
    wrong = board()
    wrong["panels"][0]["gridPosition"] = wrong["panels"][0].pop("gridPos")
    register_default_plugins()
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(wrong)))

    assert lost(wrong, again) == ["/panels/0/gridPosition"]


def test_panels_do_not_overlap() -> None:
    """Each has a place of its own on a grid of 24 columns, a title and an id."""
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert len({panel["title"] for panel in panels()}) == len(panels())


@pytest.mark.parametrize("query", queries())
def test_its_metrics_exist(query: str) -> None:
    """Masters export each, with each label and value that is asked for; and of one cluster."""
    assert used(query)
    for name, labels in used(query):
        assert is_exported(name, labels), (name, labels)
    assert query.count('job="$job"') == len(used(query))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that asks two masters each second; yields its address."""
    program = tool("prometheus", "apt-get install prometheus")
    folder, ports = tmp_path_factory.mktemp("prometheus"), Ports()
    masters, own = [ports.take(), ports.take()], f"127.0.0.1:{ports.take()}"
    targets = [f"127.0.0.1:{port}" for port in masters]
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML.
    flags = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    environment = {"JRS_BACKEND": (folder / "cluster").as_uri()}
    with ExitStack() as stack:
        for target in targets:
            words = [str(JRS), "master", "--listen", target]
            stack.enter_context(running(words, folder / "master.log", environment, folder))
        for target in targets:
            until(lambda: status(f"http://{target}/readyz") == 200, "it is ready")  # noqa: B023
        command = [program, *flags, f"--web.listen-address={own}"]
        stack.enter_context(running(command, folder / "prometheus.log", {}, folder))
        until(lambda: status(f"http://{own}/-/ready") == 200, "Prometheus is ready")
        asked = f'count_over_time(up{{job="{JOB}"}}[1m]) >= 4'
        until(lambda: counted(own, asked) == 2, "each was asked four times")
        yield own
    ports.close()


@pytest.mark.parametrize("query", queries())
def test_it_shows_something(prometheus: str, query: str) -> None:
    """Each query of a panel is one that Prometheus takes, and has an answer."""
    asked = query.replace("$job", JOB).replace("$__rate_interval", "1m")

    until(lambda: counted(prometheus, asked), f"there is an answer to {asked}")
