"""Records that damage may have hit: a scan leaves them out, and `scan_whole` says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.base import Base
from jrs.backends.file.base.overlay import UNKNOWN, Overlay, Stored
from jrs.backends.shared.ordered_map import OrderedMap
from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Create
from jrs.contract.whole_scan import scan_whole
from tests.support import rot

LOST = "stages/job/load"


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    """A backend whose base has 300 records of stages and of heads."""
    with FileBackend(tmp_path) as backend:
        for number in range(300):
            for folder in ("heads", "stages"):
                backend.commit(Create(f"{folder}/job-{number:03}/load", b"x" * 200))
        backend.commit(Create(LOST, b"lost"))
        backend.compact()
        yield backend


def test_a_sound_store_is_whole(backend: Backend) -> None:
    assert list(scan_whole(backend, "stages/")) == list(backend.scan("stages/"))
    assert list(scan_whole(backend, "nothing/")) == []


def test_a_record_that_the_disk_has_lost(backend: Backend, tmp_path: Path) -> None:
    """D2: the prefix of a record that may be lost is not whole; those that it has no part of are.
    An open handle notices, and so does a new one."""
    rot(tmp_path, LOST)

    for handle in (backend, FileBackend(tmp_path)):
        with handle:
            assert list(handle.scan("stages/job/")) == []
            for prefix in ("stages/job/", "stages/", ""):
                with pytest.raises(CorruptRecord, match=r"because damage in .*\.run may have hit"):
                    list(scan_whole(handle, prefix))
            assert len(list(scan_whole(handle, "heads/"))) == 300
            assert len(list(scan_whole(handle, "stages/job-1"))) == 100


def test_a_key_that_is_lost_after_its_block_was_found_sound(
    backend: Backend, tmp_path: Path
) -> None:
    """D2: a handle that has read a block before does not take a key that is no longer there for one
    that never was."""
    assert backend.get(LOST) is not None
    rot(tmp_path, LOST)

    with pytest.raises(CorruptRecord, match=LOST):
        backend.get(LOST)


def test_a_commit_that_cannot_be_evaluated() -> None:
    """D2: the key of a commit that depends on damaged data may have a record."""
    changes = OrderedMap[Stored]()
    changes.set("stages/job/load", UNKNOWN)
    changes.set("stages/other/load", (b"x", 7))
    overlay = Overlay(Base(), changes, Path("7.tail"))

    assert overlay.damaged_between("stages/job/", "stages/job/~") == "7.tail"
    assert overlay.damaged_between("stages/other/", "stages/other/~") == ""
    above = Overlay(overlay, OrderedMap[Stored](), Path("9.tail"))
    assert above.damaged_between("stages/", "stages/~") == "7.tail"
