"""Whether the cluster is paused, as its leader knows it."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.operations import Record
from jrs.records import keys


class Pause:
    """Follows the pause of a cluster; used by the dispatcher's thread."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._is_noted = True
        self._acted_on = False
        self.on = False
        """Whether the cluster was paused when that was last read."""

    def note_change(self) -> None:
        """Note that a change was reported."""
        self._is_noted = True

    def read(self, stored: Record | Exception | None) -> None:
        """Take over what was read. A pause that cannot be read is a pause."""
        self.on = stored is not None

    def has_changed(self) -> bool:
        """Return whether a pause has begun or ended since the last call.

        Raises:
            Unavailable: the backend could not be asked.
        """
        if self._is_noted:
            self.read(self._backend.get_many([keys.PAUSE])[0])
            self._is_noted = False
        changed = self.on is not self._acted_on
        self._acted_on = self.on
        return changed
