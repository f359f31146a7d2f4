"""What readers find in a log that has lost data, once an operator has accepted that."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.errors import CorruptRecord, WrongState
from jrs.contract.operations import Check, Create
from jrs.testing.contract import present
from tests.support import rot

MARK = b"~~"
COUNT = 20


@pytest.mark.parametrize("lost", [slice(5, 8), slice(2, 12), slice(3, 4)], ids=str)
def test_what_was_created_since_a_version(tmp_path: Path, lost: slice) -> None:
    """Commits behind lost data keep their versions: a reader that asks for those since a version
    gets each of them."""
    with FileBackend(tmp_path) as backend:
        for number in range(COUNT):
            backend.commit(Create(f"f/{number:02}", b"v" * 10 * number))
        log = backend.replica.segment.log.path
    batches = log.read_bytes().split(MARK)
    del batches[lost]
    log.write_bytes(MARK.join(batches))

    with FileBackend(tmp_path) as backend:
        with pytest.raises(CorruptRecord):
            backend.get("f/00")
        assert backend.accept_damage()
        found = backend.created_since("f/", 0)
        assert len(found) == COUNT - (lost.stop - lost.start)
        for place, record in enumerate(found):
            assert backend.created_since("f/", record.version) == found[place:]
        backend.commit(Create("f/new", b""))
        newest = [record.key for record in backend.created_since("f/", found[-1].version)]
        assert newest == [found[-1].key, "f/new"]


def test_no_damage_is_accepted_next_to_a_leader(tmp_path: Path) -> None:
    """D2: a leader that read the log before the damage builds on what others cannot evaluate. To
    discard that would split the cluster, whatever the handle of the operator had read before."""
    with FileBackend(tmp_path) as backend, FileBackend(tmp_path) as operator:
        leads = backend.campaign("m1", ttl=60.0, stop=threading.Event())
        assert leads is not None
        backend.commit(Create("r/0", b"x"), fence=leads.fence)
        backend.compact()
        known = present(backend, "r/0").version
        backend.commit(Check("r/0", known), Create("r/1", b"x"), fence=leads.fence)
        assert operator.get("r/1") is not None
        rot(tmp_path, "r/0")
        backend.commit(Check("r/0", known), Create("r/2", b"x"), fence=leads.fence)
        for handle in (operator, FileBackend(tmp_path)):
            with handle, pytest.raises(WrongState, match="a master leads"):
                handle.accept_damage()
        assert backend.get("r/1") is not None
        leads.resign()
    with FileBackend(tmp_path) as operator:
        assert operator.accept_damage()
