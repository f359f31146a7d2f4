"""The contract's test suite: subclass its classes with your fixtures, and every case runs.

::

    class MyStore(BackendFixtures):
        @pytest.fixture
        def opener(self, tmp_path):
            return lambda cluster: open_backend(f"mystore://{tmp_path}", cluster=cluster)

    class TestRead(MyStore, ReadContract): ...
    class TestCommit(MyStore, CommitContract): ...

A case that needs something the backend does not declare in its `capabilities` is skipped and says
what is missing. Cases wait for conditions with a generous bound; none asserts a duration.
"""

from jrs.testing.contract.commits import CommitContract, LimitsContract
from jrs.testing.contract.concurrency import (
    ConcurrencyContract,
    MultiProcessContract,
    StatefulContract,
)
from jrs.testing.contract.fencing import FencingContract
from jrs.testing.contract.fixtures import (
    BOUND,
    BackendFixtures,
    Hang,
    Opener,
    contents,
    lead,
    present,
)
from jrs.testing.contract.leading import ElectionContract, WatchContract
from jrs.testing.contract.reads import CreatedContract, PagingContract, ReadContract

ALL = (ReadContract, CommitContract, FencingContract, PagingContract, CreatedContract,
       LimitsContract, WatchContract, ElectionContract, ConcurrencyContract, MultiProcessContract,
       StatefulContract)  # fmt: skip
"""Every class of the suite; a backend that does not run all of them has to say why."""

__all__ = [
    "ALL",
    "BOUND",
    "BackendFixtures",
    "CommitContract",
    "ConcurrencyContract",
    "CreatedContract",
    "ElectionContract",
    "FencingContract",
    "Hang",
    "LimitsContract",
    "MultiProcessContract",
    "Opener",
    "PagingContract",
    "ReadContract",
    "StatefulContract",
    "WatchContract",
    "contents",
    "lead",
    "present",
]
