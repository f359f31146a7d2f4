"""Which segments exist, while other processes begin and sweep them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.backends.file import segments
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.base import Base
from jrs.backends.file.segments import Form, Header, begin, names
from jrs.contract.operations import Create


def test_a_segment_that_is_swept_while_segments_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for one that is pending. Then a file of the segment before seemed to be missing,
    and the folder was refused as damaged."""
    real, acted = names._continues, list[int]()
    with FileBackend(tmp_path) as other:
        other.compact()
        before, folder = other.replica.start, other.replica.folder

        def acts_first(folder: Path, start: int) -> bool:
            if not acted:
                acted.append(start)
                other.commit(Create("k", b""))
                other.compact()
            return real(folder, start)

        monkeypatch.setattr(names, "_continues", acts_first)
        assert names.newest(folder) == other.replica.start
        assert acted == [before]


def test_a_run_that_is_swept_before_its_header_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer slept meanwhile, and others are in a later segment: nothing is to be done."""

    def swept(folder: Path, start: int) -> None:
        raise FileNotFoundError(start)

    segments.create(tmp_path / "log")
    monkeypatch.setattr(begin, "trailer_of", swept)
    segments.write_base(tmp_path / "log", Header(99, b"identity", Form.LEVELS), Base(), [])
    assert not names.header_path(tmp_path / "log", 99).exists()
