"""docs/sidecar.md has every route and every metric, in the words of the code."""

from __future__ import annotations

from pathlib import Path

from jrs.recovery.health.facts import MasterHealth
from jrs.recovery.health.metrics import metrics
from jrs.sidecar.app import ROUTES
from jrs.sidecar.metrics import STREAM_METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "sidecar.md").read_text().splitlines()


def test_every_route_is_documented() -> None:
    rows = [
        f"| `{one.method} {one.path}` | {one.role.value} | {one.said} | `{one.stands_for}` |"
        for one in ROUTES
    ]
    assert [line for line in PAGE if line.startswith(("| `GET", "| `POST"))] == rows


def test_every_metric_is_documented() -> None:
    rows = [
        f"| `{one.name}` | {one.kind} | {one.help} |" for one in metrics(MasterHealth().facts())
    ]
    rows += [f"| `{name}` | gauge | {said} |" for name, (said, _) in STREAM_METRICS.items()]
    assert [line for line in PAGE if line.startswith("| `jrs_")] == rows
