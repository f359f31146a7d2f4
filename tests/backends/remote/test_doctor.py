"""``jrs doctor`` on real servers: fit, unfit, and out of reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from jrs.store.opening import open_backend
from jrs.testing.servers import EtcdServer, Server, ZooKeeperServer

PATIENT = "--create", "--ttl", "3600"
"""A ttl for which no commit is too slow, however busy this machine is."""


def doctor(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jrs", "doctor", "--backend", url, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={name: value for name, value in os.environ.items() if not name.startswith("JRS_")},
    )


@pytest.fixture(params=["etcd", "zookeeper"])
def server(request: pytest.FixtureRequest) -> Server:
    found: EtcdServer | ZooKeeperServer = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture(params=["etcd", "zookeeper"])
def ensemble(request: pytest.FixtureRequest) -> Server:
    found: EtcdServer | ZooKeeperServer = request.getfixturevalue(f"{request.param}_ensemble")
    return found


def test_fit(server: Server) -> None:
    """Next to a leader, too, which does not notice."""
    with open_backend(server.url(), cluster="default") as backend:
        leadership = backend.campaign("leads", ttl=3600.0, stop=threading.Event())
        assert leadership is not None
        with leadership:
            ended = doctor(server.url(), *PATIENT)
            assert not leadership.lost.is_set()
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[-1] == "fit"
    assert all(line.startswith("ok ") for line in lines[:-1])
    said = {line.split()[1] for line in lines[:-1]}
    assert said >= {"open", "member", "encryption", "session", "write", "fence", "commits", "watch"}


def test_a_cluster_that_does_not_exist(server: Server) -> None:
    """The doctor says so, and creates it only on request."""
    for _ in range(2):
        ended = doctor(server.url(), "--cluster", "newcomer")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "cluster 'newcomer'" in ended.stdout
        assert "does not exist yet" in ended.stdout


def test_a_member_that_is_down(ensemble: Server) -> None:
    """The ensemble keeps working, and the doctor names the member."""
    ensemble[0].kill()
    ended = doctor(ensemble.url(), "--json", *PATIENT)
    assert (ended.returncode, ended.stderr) == (1, "")
    found = json.loads(ended.stdout)
    wrong = [one for one in found if one["remedy"]]
    host, port = ensemble[0].endpoint
    assert [one["what"] for one in wrong] == ["member"]
    assert f"{host}:{port}" in wrong[0]["detail"]


def test_a_ttl_that_is_not_granted(server: Server) -> None:
    ended = doctor(server.url(), "--create", "--ttl", "7200")
    assert ended.returncode == 1
    assert "BAD  ttl" in ended.stdout


def test_out_of_reach(server: Server) -> None:
    """One line, and nothing that looks like a crash."""
    url = server.url(endpoints=[("127.0.0.1", 1)])
    ended = doctor(f"{url}?timeout=3")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert "no server listens at 127.0.0.1:1" in ended.stderr
