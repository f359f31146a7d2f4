"""What the tests of the file backend's crashes share."""

from collections.abc import Iterator

import pytest

from tests.crash.forks import Forks


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks
