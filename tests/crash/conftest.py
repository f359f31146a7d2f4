"""What the tests of the file backend's crashes share."""

from collections.abc import Iterator

import pytest

from tests.forks import Forks


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(
        "jrs.backends.file.backend", "jrs.contract.errors", "jrs.contract.operations"
    ) as forks:
        yield forks
