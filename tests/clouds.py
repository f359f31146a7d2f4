"""The kinds of stores of objects, as parameters of tests, and a server of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import azurite
from tests.azurite import Azurite, serving_azure
from tests.recovery.storage.support import Store
from tests.s3 import S3, serving

SCHEMES = ["s3", "gs", *(["abfss"] if azurite.COMMAND else [])]
"""Azure's only where there is its emulator: `./dev long clouds` installs it, by npm."""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A server of S3, which clients of Google can use, too."""
    with serving(tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


@pytest.fixture(scope="module")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with serving_azure(tmp_path_factory.mktemp("azure") / "log") as server:
        yield server


@pytest.fixture(params=["memory", *SCHEMES])
def any_store(request: pytest.FixtureRequest) -> Store:
    """A store in memory, and one of each kind of server."""
    return Store() if request.param == "memory" else Store(url_of(request, request.param))


@pytest.fixture(params=SCHEMES)
def cloud(request: pytest.FixtureRequest) -> Store:
    """A store of each kind of server."""
    return Store(url_of(request, request.param))


def url_of(request: pytest.FixtureRequest, scheme: str, bucket: str = "bucket") -> str:
    """Return the URL of a storage that no other test has, on a server of its kind."""
    if scheme == "abfss":
        azure: Azurite = request.getfixturevalue("azure_server")
        return azure.url(container=bucket)
    server: S3 = request.getfixturevalue("s3")
    return server.url(bucket=bucket) if scheme == "s3" else server.google_url(bucket=bucket)
