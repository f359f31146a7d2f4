"""The registry of backends: an entry point for each URL scheme."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from urllib.parse import urlsplit

from jrs.contract.backend import Backend
from jrs.contract.errors import InvalidInput
from jrs.contract.texts import redacted, shown

_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def opener_of(url: str) -> Callable[[str, str, bool], Backend]:
    """Return the function that opens the backend of `url`: ``open(url, cluster, create)``.

    The function comes from the entry-point group ``jrs.backends``. A third party adds a backend
    with an entry point ``scheme = "package.module:open"``.

    Raises:
        InvalidInput: the scheme is unknown, or its packages are not installed.
    """
    if not isinstance(url, str):
        raise InvalidInput(f"not a URL: {shown(url)}")
    try:
        urlsplit(url)
    except ValueError as error:
        raise InvalidInput(f"not a URL: {shown(url)}: {error}") from None
    scheme, colon, _ = url.partition(":")
    known = _entry_points()
    if scheme not in known:  # It may have been installed since.
        _entry_points.cache_clear()
        known = _entry_points()
    if not colon or scheme not in known:
        raise InvalidInput(
            f"unknown backend {redacted(url)!r}: give a URL whose scheme is one of "
            f"{', '.join(sorted(known))}, for example file:///var/lib/jrs"
        )
    try:
        opener: Callable[[str, str, bool], Backend] = known[scheme].load()
    except ImportError as error:
        raise InvalidInput(
            f"the backend {scheme!r} needs the package {error.name!r}, which is not installed: "
            f"pip install 'jrs[{scheme}]'"
        ) from error
    return opener


@functools.cache  # It reads what each installed package says of itself: milliseconds each time.
def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="jrs.backends")}


def check_cluster(cluster: str) -> None:
    """Raise `InvalidInput` unless `cluster` is a valid cluster id."""
    if not isinstance(cluster, str) or not _CLUSTER.fullmatch(cluster):
        raise InvalidInput(
            f"not a cluster id: {shown(cluster)} (1 to 128 of A-Z a-z 0-9 . _ -, starting with a "
            "letter or digit)"
        )
