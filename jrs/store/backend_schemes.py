"""The registry of backends: which function opens a URL, by its scheme."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from jrs.contract.backend import Backend
from jrs.contract.errors import InvalidInput
from jrs.contract.texts import redacted, shown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OWN = {
    "memory": "jrs.backends.memory:open_memory",
    "file": "jrs.backends.file.backend:open_file",
    "etcd": "jrs.backends.etcd.backend:open_etcd",
    "zookeeper": "jrs.backends.zookeeper.backend:open_zookeeper",
}
"""The backends of jrs. To ask what is installed takes each process 3 MB and 20 ms."""

_FOR_TESTS = frozenset({"recorded"})
"""The scheme of `jrs.testing`, which wraps another backend: no message offers it."""

Opener = Callable[[str, str, bool], Backend]
"""Opens a backend: ``open(url, cluster, create)``."""


def opener_of(url: str) -> Opener:
    """Return the function that opens the backend of `url`.

    A third party adds a backend with an entry point ``scheme = "package.module:open"`` of the group
    ``jrs.backends``. It cannot replace one of ours.

    Raises:
        InvalidInput: the scheme is unknown, or its packages are not installed.
    """
    if not isinstance(url, str):
        raise InvalidInput(f"not a URL: {shown(url)}")
    try:
        urlsplit(url)
    except ValueError:
        raise InvalidInput(
            f"not a URL: {redacted(url)!r}: its host cannot be read; escape [ and ] in the user "
            "and the password as %5B and %5D"
        ) from None
    scheme, colon, _ = url.partition(":")
    try:
        return _own(scheme) if colon and scheme in OWN else _others(url, scheme if colon else "")
    except ImportError as error:
        raise InvalidInput(
            f"the backend {scheme!r} needs packages that are not installed: pip install "
            f"'jrs[{scheme}]' (no module {error.name!r})"
        ) from error


def _own(scheme: str) -> Opener:
    module, _, name = OWN[scheme].partition(":")
    opener: Opener = getattr(import_module(module), name)
    return opener


def _others(url: str, scheme: str) -> Opener:
    known = _entry_points()
    if scheme not in known:  # It may have been installed since.
        _entry_points.cache_clear()
        known = _entry_points()
    if scheme not in known:
        schemes = ", ".join(sorted({*OWN, *known} - _FOR_TESTS))
        is_path = url.startswith("/") and not url.startswith("//")
        like = f"; did you mean file://{redacted(url)}?" if is_path else ", as file:///var/lib/jrs"
        raise InvalidInput(
            f"unknown backend {redacted(url)!r}: give a URL whose scheme is one of {schemes}{like}"
        )
    opener: Opener = known[scheme].load()
    return opener


@functools.cache  # It reads what each installed package says of itself: milliseconds each time.
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # See `OWN`.

    return {point.name: point for point in entry_points(group="jrs.backends")}
