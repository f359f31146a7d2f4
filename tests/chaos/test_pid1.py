"""A master in a container of its own: its processes end with the first of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jrs.testing.masters import Masters
from jrs.testing.processes import children
from jrs.testing.servers import EtcdServer
from tests.chaos.support import Stamps, newest
from tests.unshared import as_root

__all__ = ["as_root"]

CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
TTL = 120.0
"""Longer than the test waits for another leader."""


@pytest.mark.usefixtures("as_root")
def test_its_session_ends_when_it_is_killed(
    etcd_server: EtcdServer, tmp_path: Path, cluster: str
) -> None:
    """The first process stays until the guardian has ended the session: another master leads long
    before the ttl, and then the container ends with the code of a killed process."""
    url = etcd_server.url()
    with Masters(url, cluster=cluster, storage=tmp_path / "jobs", ttl=TTL) as masters:
        contained = masters.start("contained", prefix=CONTAINER)
        masters.leader()
        stamps = Stamps(tmp_path)
        stamps.submit(masters.backend)
        stamps.await_more(masters, 1)
        masters.start("other")

        (first,) = children(contained.process.pid)
        (master,) = children(first)[:1]
        os.kill(master, signal.SIGKILL)
        masters.until(lambda: newest(masters.backend)[1] == "other", "the other one leads")

        stamps.await_more(masters, 2)
        stamps.never_overlap(1, 2)
        masters.until(lambda: not contained.alive, "the container ends")
        assert contained.process.returncode == 128 + signal.SIGKILL
        assert stamps.finish(masters.backend) == "epoch 2"
