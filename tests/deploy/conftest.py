"""What the long forms share: an engine with the image, and Debian's own tools to make it from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.deploy.found import tool
from tests.deploy.image import Docker, make_root
from tests.testing.servers.dockerd import needed_engine


@pytest.fixture(scope="session")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    """An engine with the image, built on a Debian that debootstrap has made.

    JRS_TEST_ENGINE names an engine that has it already.
    """
    given = os.environ.get("JRS_TEST_ENGINE")
    if given:
        yield Docker(given)
        return
    tool("debootstrap", "apt-get install debootstrap")
    with needed_engine() as host:
        engine, root = Docker(host), tmp_path_factory.mktemp("debian") / "root"
        make_root(root)
        engine.load_base(root)
        shutil.rmtree(root)
        print(engine.build())
        yield engine
