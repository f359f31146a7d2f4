"""A commit whose outcome is unknown, and whose read-back fails, too."""

from __future__ import annotations

import pytest

from jrs.backends.memory import open_memory
from jrs.contract.clock import Deadline
from jrs.contract.errors import AccessDenied, ClusterMoved, CorruptRecord, JrsError, OutcomeUnknown
from jrs.contract.operations import Create, Fence, Op, Record
from jrs.contract.read_back import commit_and_read_back


@pytest.mark.parametrize("kind", [AccessDenied, ClusterMoved, CorruptRecord])
def test_a_read_back_that_is_refused_leaves_the_outcome_unknown(
    kind: type[JrsError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster moved meanwhile, with the written record: "nothing was changed" would be wrong,
    and the work that the caller then submits at the target would be the second."""
    backend = open_memory("memory://read-back", kind.__name__)
    done = backend._commit

    def commit(ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        done(ops, fence, deadline)
        raise OutcomeUnknown("the answer was lost")

    def get(key: str, deadline: Deadline) -> Record | None:
        raise kind("nothing was changed")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "_commit", commit)
        patch.setattr(backend, "_get", get)
        with pytest.raises(OutcomeUnknown, match="the answer was lost"):
            commit_and_read_back(backend, Create("jobs/j", b"spec"))
    assert backend.get("jobs/j") is not None
