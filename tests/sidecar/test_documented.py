"""docs/sidecar.md has every route and every metric, in the words of the code; and the routes have
every call of the client."""

from __future__ import annotations

import re
from pathlib import Path

from jrs.client.client import Client
from jrs.client.job import JobHandle
from jrs.client.snapshots import JobSnapshots
from jrs.recovery.health.facts import MasterHealth
from jrs.recovery.health.metrics import metrics
from jrs.sidecar.metrics import STREAM_METRICS
from jrs.sidecar.routes import ROUTES

PAGE = (Path(__file__).parents[2] / "docs" / "sidecar.md").read_text().splitlines()
CALLS = {"client.job(id).snapshots.": JobSnapshots, "client.job(id).": JobHandle, "client.": Client}
_PATH = "it takes or returns a path of the caller's host"
_UPKEEP = "upkeep at a host that has the storage; it takes long, or is permanent"
NO_ROUTE = {
    "client.job": "each path of a job is one",
    "client.jobs": "the same jobs as views()",
    "client.expiring": "the same jobs as expire(), each as soon as it is gone",
    "client.submit": "its function is of the caller's process; submit_spec() is the route",
    "client.close": "the server's own",
    "client.restore": _PATH,
    "client.history_cursor": "the `next` of the last page of /v1/history",
    "client.storage": "a path of the masters' hosts, which callers of the API do not reach",
    "client.adopt_storage": _UPKEEP,
    "client.fsck": _UPKEEP,
    "client.gc": _UPKEEP,
    "client.accept_damage": _UPKEEP,
    "client.restore_epoch": _UPKEEP,
    "client.raise_cluster_format": _UPKEEP,
    "client.job(id).status": "a part of view()",
    "client.job(id).log_folder": _PATH,
    "client.job(id).sign": "the key must not be where the API is",
    "client.job(id).snapshots.move": _PATH,
    "client.job(id).snapshots.export": _PATH,
}
"""The calls that have no route, and why."""


def _called(text: str) -> set[str]:
    """Return the calls that a route stands for: each has the prefix of the first, or its own."""
    prefix = next((one for one in CALLS if text.startswith(one)), None)
    if prefix is None:
        return set()
    names = re.findall(r"(?:snapshots\.)?\b\w+(?=\()", text.removeprefix(prefix))
    return {f"{prefix}{name}" for name in names}


def test_every_call_has_a_route() -> None:
    """Every public method of a client, of a job and of its snapshots has a route, or a reason."""
    public = {
        f"{prefix}{name}"
        for prefix, kind in CALLS.items()
        for name, found in ((name, getattr(kind, name)) for name in dir(kind))
        if callable(found) and not name.startswith("_")
    }
    routed = set().union(*(_called(one.stands_for) for one in ROUTES))
    assert routed | NO_ROUTE.keys() == public
    assert not routed & NO_ROUTE.keys()


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
