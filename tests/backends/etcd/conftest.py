"""What all tests of the etcd backend have in common."""

from __future__ import annotations

import pytest

from jrs.backends.etcd import watch


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a watch tells here was heard, and is not the poll behind it."""
    monkeypatch.setattr(watch, "_POLL", 3600.0)
