"""Older versions of jrs, as fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.older_versions import OlderVersion, unpack, version


@pytest.fixture(scope="session")
def _older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("older-versions")
    unpack(folder)
    return folder


@pytest.fixture
def format_1(_older: Path) -> OlderVersion:
    return version(_older, 1)


@pytest.fixture
def rolling(_older: Path, request: pytest.FixtureRequest) -> OlderVersion:
    """A version that can share a cluster with this one; its format is given indirectly."""
    return version(_older, request.param)
