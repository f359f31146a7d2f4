"""A fixture for tests that make network namespaces: it lends an ordinary user a root of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from jrs.testing.servers.fixtures import missing

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
