"""The pytest plugin: the fixture `world`, and what it needs.

It is found by its entry point wherever jrs is installed.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from jrs.store.result_store import JobResultStore
    from jrs.testing.chaos.plan import Plan
    from jrs.testing.chaos.world import World
    from jrs.testing.masters import Masters
    from jrs.testing.servers import Server

# Imported inside functions: attrs, jrs, since every run of pytest loads this plugin.

_LONGEST = 200
"""Characters of the name of a kept report."""
_SERVERS = pytest.StashKey[dict[tuple[str, int], Any]]()
_STACK = pytest.StashKey[ExitStack]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("jrs", "chaos tests of jrs")
    group.addoption("--chaos-seed", type=int, metavar="N", help="the seed of every chaos test")
    group.addoption("--chaos-seconds", type=float, metavar="S", help="how long faults last")
    group.addoption("--chaos-report", type=Path, metavar="DIR", help="keep all reports there")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "jrs_chaos(plan): a chaos test; see jrs.testing.chaos")
    config.stash[_SERVERS] = {}
    config.stash[_STACK] = ExitStack()


def pytest_unconfigure(config: pytest.Config) -> None:
    stack = config.stash.get(_STACK, None)
    if stack is not None:
        stack.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("jrs_chaos")
    if marker is None:
        return
    if "world" not in metafunc.fixturenames:
        said = f"{metafunc.definition.name} has the decorator @chaos(…), and no argument 'world'"
        pytest.fail(said, pytrace=False)
    metafunc.parametrize("world", marker.args[0].backend, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """The world of a test with the decorator `chaos`: masters, jobs and faults."""
    import attrs

    from jrs.testing.chaos.world import World

    marker = request.node.get_closest_marker("jrs_chaos")
    if marker is None:
        pytest.fail("a test that gets a world needs the decorator @chaos(…)", pytrace=False)
    plan: Plan = marker.args[0]
    seconds = request.config.getoption("--chaos-seconds")
    if seconds is not None:
        plan = attrs.evolve(plan, seconds=seconds)
    seed = request.config.getoption("--chaos-seed")
    seed = plan.seed if seed is None else seed
    words = ["pytest", request.node.nodeid, "--chaos-seed", str(seed)]
    again = shlex.join(words if seconds is None else [*words, "--chaos-seconds", str(seconds)])
    server = _server(request.config, request.param, plan.members)
    folder = tmp_path / "chaos"
    with World(plan, request.param, folder, server=server, seed=seed, again=again,
               say=lambda text: print(text, file=sys.stderr)) as made:  # fmt: skip
        yield made
        for line in made.without_effect():
            request.node.warn(pytest.PytestWarning(line))
    keep = request.config.getoption("--chaos-report")
    if keep is not None and (folder / "report.html").exists():
        keep.mkdir(parents=True, exist_ok=True)
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in request.node.nodeid)
        shutil.copy(folder / "report.html", keep / f"{name[-_LONGEST:]}.html")


def _server(config: pytest.Config, scheme: str, members: int) -> Server | None:
    """Return a healthy server, which lives as long as the test run; None for the file backend."""
    if scheme == "file":
        return None
    from jrs.testing.servers import FINDERS, ServerUnhealthy
    from jrs.testing.servers.fixtures import had

    servers = config.stash[_SERVERS]
    with suppress(ServerUnhealthy):  # No other test's any more.
        if (used := servers.pop((scheme, members), None)) is not None:
            used.heal()
            servers[scheme, members] = used
    if (scheme, members) not in servers:
        servers[scheme, members] = config.stash[_STACK].enter_context(
            had(lambda: FINDERS[scheme](members))
        )
    server: Server = servers[scheme, members]
    return server


@pytest.fixture
def jrs_masters(tmp_path: Path) -> Iterator[Masters]:
    """Masters of a new cluster of the file backend: ``jrs_masters.start("m1")``."""
    from jrs.testing.masters import Masters

    with Masters((tmp_path / "jrs").as_uri(), storage=tmp_path / "files") as masters:
        yield masters


@pytest.fixture
def jrs_store() -> Iterator[JobResultStore]:
    """A `JobResultStore` of its own, in memory."""
    from jrs.store.opening import open_backend
    from jrs.store.result_store import JobResultStore

    with open_backend("memory://") as backend:
        yield JobResultStore(backend)
