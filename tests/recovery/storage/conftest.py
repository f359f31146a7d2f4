"""The stores that tests of objects run with: one in memory, and one of each kind of server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.azurite import Azurite, serving_azure
from tests.clouds import SCHEMES
from tests.recovery.storage.support import Store
from tests.s3 import S3, serving


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with serving(tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with serving_azure(tmp_path_factory.mktemp("azure") / "log") as server:
        yield server


@pytest.fixture(params=["memory", *SCHEMES])
def store(request: pytest.FixtureRequest) -> Store:
    """A store in memory, and one of each kind of server."""
    return Store() if request.param == "memory" else Store(url_of(request, request.param))


def url_of(request: pytest.FixtureRequest, scheme: str, bucket: str = "bucket") -> str:
    if scheme == "abfss":
        server: Azurite = request.getfixturevalue("azure")
        return server.url(container=bucket)
    s3: S3 = request.getfixturevalue("s3")
    return s3.url(bucket=bucket) if scheme == "s3" else s3.google_url(bucket=bucket)
