"""Tests of objects run with a store in memory, and with a server of each kind."""

from __future__ import annotations

import pytest

from tests.recovery.storage.support import Store


@pytest.fixture
def store(any_store: Store) -> Store:
    return any_store
