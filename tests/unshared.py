"""Fixtures for tests that make network namespaces: a root of its own for an ordinary user, and
servers on hosts of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from jrs.testing.servers import EtcdServer, Server, ServerMissing, ZooKeeperServer
from jrs.testing.servers.fixtures import had, missing
from jrs.testing.servers.namespaces import Namespaces

UNSHARED = "JRS_TEST_UNSHARED"
OWN = 'mount -t tmpfs jrs /run && ip link set lo up && exec "$@"'


@pytest.fixture
def as_root(request: pytest.FixtureRequest) -> None:
    """Run the test in namespaces of our own where we are not root."""
    if os.geteuid() == 0:
        return
    if shutil.which("unshare") is None or os.environ.get(UNSHARED):
        missing("no 'unshare' on the PATH: apt-get install util-linux")
    own = ["unshare", "-Urnm", "sh", "-c", OWN, "sh"]
    if (refused := subprocess.run([*own, "true"], capture_output=True, text=True)).returncode:
        missing(f"namespaces need root or 'unshare -Urnm', which says: {refused.stderr.strip()}")
    done = subprocess.run(
        [*own, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", request.node.nodeid],
        cwd=request.config.rootpath,
        env={**os.environ, UNSHARED: "1"},
        capture_output=True,
        text=True,
        timeout=240.0,
    )

    assert done.returncode == 0, done.stdout[-4000:]

    pytest.skip("passed in a user namespace of its own")


@pytest.fixture
def place(as_root: None) -> Iterator[Namespaces]:
    """A host for each of three servers, and for two clients."""
    try:
        place = Namespaces(3, clients=2)
    except ServerMissing as error:
        missing(error)
    yield place
    place.close()


@pytest.fixture(params=[EtcdServer, ZooKeeperServer], ids=["etcd", "zookeeper"])
def server(request: pytest.FixtureRequest, place: Namespaces) -> Iterator[Server]:
    with had(lambda: request.param(place, 3)) as server:
        yield server
