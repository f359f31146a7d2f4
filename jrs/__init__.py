"""jrs: an embedded JobResultStore and high-availability recovery for Python drivers.

Every name that users need is here; `__init__.pyi` lists them. Each is loaded when it is first asked
for: the watchdog and the attempts of every job import this package, and a reader of results needs
no dispatcher.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = sorted([*__all__, "__version__"])

_OLD = {
    "JobCatalog": ("jrs.store.jobs", "jrs.connect(…) and its jobs"),
    "JobStops": ("jrs.store.stops", "suspend, drain and resume of jrs.connect(…).job(id)"),
    "SnapshotCatalog": ("jrs.recovery.snapshot_catalog", "jrs.connect(…).job(id).snapshots"),
}
"""Names of 0.1, which are gone in 0.3, and what to use; see docs/upgrading.md."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # Takes most of the time of `import jrs`.

        return version("jrs")
    if name in _OLD:
        room, instead = _OLD[name]
        warnings.warn(
            f"jrs.{name} will be removed in 0.3: use {instead}", DeprecationWarning, stacklevel=2
        )
        return getattr(import_module(room), name)
    found = _load(name)
    if getattr(found, "__module__", "").startswith("jrs."):  # No alias of a type.
        if hasattr(found, "__attrs_attrs__"):
            # While the names in its annotations are those of the module that it was defined in.
            import_module("attrs").resolve_types(found)
        found.__module__ = __name__
    return found
