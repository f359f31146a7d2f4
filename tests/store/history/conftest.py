"""A cluster on each backend, for the tests of histories."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jrs.contract.backend import Backend
from jrs.store.opening import open_backend


@pytest.fixture(params=["memory", "file", "etcd", "zookeeper"])
def open_handle(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Backend]]:
    """Open handles on one new cluster of each backend."""
    cluster = f"c{uuid.uuid4().hex}"
    if request.param == "memory":
        url = f"memory://{cluster}"
    elif request.param == "file":
        url = (tmp_path / "store").as_uri()
    else:
        url = request.getfixturevalue(f"{request.param}_server").url()
    with ExitStack() as stack:
        yield lambda: stack.enter_context(open_backend(url, cluster=cluster))


@pytest.fixture
def backend(open_handle: Callable[[], Backend]) -> Backend:
    return open_handle()
