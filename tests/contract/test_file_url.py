"""File URLs: the folder that each one names, and no other folder for those that name none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jrs.backends.file.backend import open_file
from jrs.contract.errors import InvalidInput
from jrs.contract.storage_place import place_of

REFUSED = [
    pytest.param("file://data/jobs", "not a file URL", id="host"),
    pytest.param("file://user:pw@host/jobs", "not a file URL", id="credentials"),
    pytest.param("file:data/jobs", "write file:///absolute/path", id="relative"),
    pytest.param("file:", "not a file URL", id="nothing"),
    pytest.param("file://", "not a file URL", id="no-path"),
    pytest.param("file://[x/jobs", "not a file URL", id="broken"),
    pytest.param("file:///a?b", "%3F", id="query"),
    pytest.param("file:///a?", "%3F", id="empty-query"),
    pytest.param("file:///a#1", "%23", id="fragment"),
    pytest.param("file:///a\tb", "control characters", id="tab"),
    pytest.param("file:///a%00b", "control characters", id="zero"),
]


@pytest.mark.parametrize(("url", "why"), REFUSED)
def test_another_folder_is_never_meant_instead(url: str, why: str) -> None:
    """As a storage, `file://data/jobs` was /jobs, and `file:///a#1` was /a."""
    with pytest.raises(InvalidInput, match=why):
        place_of(url)
    with pytest.raises(InvalidInput, match=why):
        open_file(url, "default", create=False)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///data/jobs", "/data/jobs"),
        ("file://localhost/data/jobs", "/data/jobs"),
        ("file:/data/jobs", "/data/jobs"),
        ("FILE:///data/a%20b%3F%23", "/data/a b?#"),
        ("file:///ü", "/ü"),
    ],
)
def test_the_folder_of_a_url(url: str, path: str) -> None:
    assert place_of(url).root == Path(path)
    assert not place_of(url).url


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    assert place_of(folder.as_uri()).root == folder
