"""Stored: the base of every stored value, so that versions of jrs can share a cluster."""

from __future__ import annotations

from typing import Any

import attrs

from jrs.records.field_types import check_fields


@attrs.frozen
class Stored:
    """The base of every stored type.

    A newer version may add fields that an older version can ignore. The older version keeps them
    when it writes the value again (`attrs.evolve`), so that nothing is lost while both run in one
    cluster.

    Raises:
        InvalidInput: from the constructor, if a field could not be read back; see `check_fields`.
    """

    unknown: dict[str, Any] | None = attrs.field(default=None, kw_only=True, repr=False, hash=False)
    """Fields of a newer version, as plain JSON; None if the value has none."""

    def __attrs_post_init__(self) -> None:
        check_fields(self)

    def least_reader(self) -> int:
        """Return the version of the type that a reader must know to act on this value.

        Override it where a reader must not take a newer form for an older one. An older version of
        jrs then raises `UnsupportedVersion` for the record and holds the job.
        """
        return 1
