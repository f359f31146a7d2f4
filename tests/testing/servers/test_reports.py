"""What the report of a failed test says about the servers that it used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jrs.testing.servers import EtcdServer

FAILS = """
def test_fails(etcd_server):
    etcd_server.kill()
    assert False
"""


def test_a_failed_test_shows_the_servers_logs(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """Without them nobody can tell why a server dropped a connection in CI."""
    (tmp_path / "test_fails.py").write_text(FAILS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "jrs.testing.servers.fixtures", "test_fails.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 1, done.stdout
    assert done.stdout.count("log of etcd ") == 1
    assert '"level":"warn"' in done.stdout
