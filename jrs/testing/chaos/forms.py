"""The form in which a store is written: stores under test are raised to the newest one."""

from __future__ import annotations

from jrs.backends.file import FileBackend
from jrs.versions import raise_format


def raise_form(handle: FileBackend) -> None:
    """Raise the cluster's format to the newest that this jrs knows, and begin a segment in it."""
    raise_format(handle)
    handle.compact()
