"""Former versions of stored types: how they are read, and written while a cluster needs them.

A version that is stored in another form than the present one has an entry here. It is written
until the cluster's format is raised; see `jrs.store.cluster_format`. It is read for as long as
`jrs.contract.formats.OLDEST_FORMAT` allows clusters that hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from jrs.records import model
from jrs.records.stored import Stored

Plain = dict[str, Any]


@attrs.frozen
class Former:
    """A former version of a type. Both functions take and return plain JSON objects."""

    to_present: Callable[[Plain], Plain]
    from_present: Callable[[Plain], Plain]


def _stop_renamed(fields: dict[str, str], states: dict[str, str]) -> Callable[[Plain], Plain]:
    def renamed(plain: Plain) -> Plain:
        found = {fields.get(name, name): value for name, value in plain.items()}
        if isinstance(found.get("state"), str):
            found["state"] = states.get(found["state"], found["state"])
        if isinstance(found.get("drain"), dict):
            found["drain"] = renamed(found["drain"])
        return found

    return renamed


FORMER: dict[tuple[type[Stored], int], Former] = {
    (model.StopRecord, 1): Former(
        to_present=_stop_renamed({"patience": "grace"}, {"stands": "quiesced"}),
        from_present=_stop_renamed({"grace": "patience"}, {"quiesced": "stands"}),
    ),
}
