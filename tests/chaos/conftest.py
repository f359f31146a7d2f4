"""Every chaos test runs on both servers: on one member, or on an ensemble of three."""

from __future__ import annotations

import uuid

import pytest

from jrs.testing.servers import Server

pytest.register_assert_rewrite("tests.chaos.load", "tests.chaos.support")


@pytest.fixture(params=["etcd", "zookeeper"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(request: pytest.FixtureRequest, kind: str) -> Server:
    """The shared server of one member."""
    found: Server = request.getfixturevalue(f"{kind}_server")
    return found


@pytest.fixture
def ensemble(request: pytest.FixtureRequest, kind: str) -> Server:
    """The shared ensemble of three."""
    found: Server = request.getfixturevalue(f"{kind}_ensemble")
    return found


@pytest.fixture
def cluster() -> str:
    return f"chaos-{uuid.uuid4().hex[:12]}"
