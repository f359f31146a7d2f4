"""What every test may use: a backend of each kind, whose handles are closed when the test ends."""

import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from jrs.contract.backend import Backend
from jrs.store.opening import open_backend

pytest_plugins = ["jrs.testing.servers.fixtures", "tests.clouds"]

settings.register_profile(
    "jrs", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("jrs")


LONGEST = (
    *("recovery/snapshots/test_crashes.py", "chaos/test_ensembles.py", "chaos/test_zombies.py"),
    *("cli/test_operating.py", "cli/test_job_options.py", "cli/test_hostile.py"),
    *("contract/test_etcd.py", "contract/test_zookeeper.py", "contract/test_file.py"),
    *("testing/servers/test_containers.py", "upgrade/test_rolling_upgrade.py"),
    "deploy/test_backup.py",
    *("chaos/test_failover.py", "chaos/test_every_step.py"),
    *("spark/test_demo_streaming.py", "docs/test_sessions.py", "spark/test_standalone.py"),
    *("spark/test_retrying.py", "spark/test_draining.py", "spark/test_dying_in_a_drain.py"),
    *("spark/test_fallback.py", "spark/test_demo.py", "spark/test_kills.py", "spark/test_jdbc.py"),
)
"""The files whose tests take longest, the longest first; those on Spark run by themselves."""


def _length(item: pytest.Item) -> int:
    name = item.path.relative_to(Path(__file__).parent).as_posix()
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first, or one worker still runs them when the others have nothing left.

    Leave out the long forms unless they are asked for, by `-m soak` or JRS_SOAK=1.
    """
    items.sort(key=_length)
    if os.environ.get("JRS_SOAK") or "soak" in str(config.getoption("-m")):
        return
    skip = pytest.mark.skip(reason="the long form: ask for it by -m soak or JRS_SOAK=1")
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(skip)


_spent: defaultdict[str, float] = defaultdict(float)
"""Seconds that the tests of each folder took, on all workers together."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _spent["/".join(report.nodeid.split("::")[0].split("/")[:-1])] += report.duration


_javas = os.environ.get("JRS_TEST_JAVAS")
"""The file that `./dev test` has every Java note its class in when it starts."""


def pytest_sessionstart(session: pytest.Session) -> None:
    if _javas and not hasattr(session.config, "workerinput"):
        Path(_javas).write_text("")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the time of a run went."""
    if _javas:
        started = Counter(Path(_javas).read_text().split())
        terminalreporter.section(f"JVM starts: {started.total()}")
        for name, times in started.most_common():
            terminalreporter.line(f"{times:6}  {name}")
    total = sum(_spent.values())
    if total < 60:
        return
    terminalreporter.section("minutes by folder, of all workers together")
    for folder, seconds in sorted(_spent.items(), key=lambda each: -each[1]):
        terminalreporter.line(f"{seconds / 60:6.1f}  {folder}")
    terminalreporter.line(f"{total / 60:6.1f}  in all")


@pytest.fixture(params=["memory", "file"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Backend]]:
    """Open handles on one cluster, in memory and then on a folder."""
    memory = f"memory://{uuid.uuid4().hex}"
    url = memory if request.param == "memory" else (tmp_path / "store").as_uri()
    with ExitStack() as stack:
        yield lambda: stack.enter_context(open_backend(url, cluster="test"))


@pytest.fixture
def backend(open_store: Callable[[], Backend]) -> Backend:
    return open_store()


@pytest.fixture
def other(open_store: Callable[[], Backend]) -> Backend:
    """A second handle on the same cluster."""
    return open_store()
