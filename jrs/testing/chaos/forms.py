"""The form in which a store is written: stores under test are raised to the newest one."""

from __future__ import annotations

from importlib import import_module

from jrs.backends.file import FileBackend

FORMAT = "cluster/version"
"""The record that says which form is in force."""


def raise_form(handle: FileBackend) -> None:
    """Raise the cluster's format to the newest that this jrs knows, and begin a segment in it.

    Does nothing where jrs has only one form.
    """
    try:
        versions = import_module("jrs.versions")
    except ImportError:
        return
    versions.raise_format(handle)
    handle.compact()
