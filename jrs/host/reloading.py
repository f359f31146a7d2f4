"""What is loaded from files, such as certificates, and loaded again when they are renewed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


def stamp_of(*paths: Path | None) -> tuple[object, ...]:
    """Return a value that changes when one of the files is replaced or written."""
    return tuple(map(_stamp, paths))


def _stamp(path: Path | None) -> object:
    try:
        found = path.stat() if path else None
    except OSError:
        return None
    return found and (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Reloaded(Generic[T]):
    """What some files hold. Files that cannot be loaded, as in the middle of being replaced, change
    nothing: what was loaded last remains, until they can.

    Args:
        load: loads them; raises OSError or ValueError if they cannot be used.
        kept: is told why they cannot be loaded, once for each change.

    Raises:
        OSError, ValueError: from the constructor, by `load`.
    """

    def __init__(
        self,
        paths: tuple[Path | None, ...],
        load: Callable[[], T],
        kept: Callable[[Exception], None] = lambda why: None,
    ) -> None:
        self._paths = paths
        self._load = load
        self._kept = kept
        # The stamp first: a file that is replaced in between is loaded again.
        self._told = stamp_of(*paths)
        self._loaded = self._told, load()

    def get(self) -> T:
        """Return what the files hold now, or what could be loaded last. From any thread."""
        stamp = stamp_of(*self._paths)
        before, loaded = self._loaded
        if stamp != before:
            try:
                loaded = self._load()
            except (OSError, ValueError) as error:
                if stamp != self._told:
                    self._kept(error)
            else:
                self._loaded = stamp, loaded  # Together: another thread may have read older files.
            self._told = stamp
        return loaded
