"""Changes: what a watch has heard of, kept until it is asked."""

from __future__ import annotations

import threading

_MOST = 10_000
"""Names that are kept. A watch that heard of more says that anything may have changed."""


class Changes:
    """The names of what changed since they were last taken. Safe for use by many threads.

    At first anything may have changed, as the contract wants of a new watch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] | None = None

    def add(self, name: str | None) -> None:
        """Note that `name` changed; None: that anything may have."""
        with self._lock:
            if name is None or self._names is None or len(self._names) >= _MOST:
                self._names = None
            else:
                self._names.add(name)

    def take(self) -> frozenset[str] | None:
        """Return the names and forget them; None if anything may have changed."""
        with self._lock:
            names, self._names = self._names, set()
            return None if names is None else frozenset(names)
