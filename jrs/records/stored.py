"""Stored: what every stored value has in common, so that versions of jrs can share a cluster."""

from __future__ import annotations

from typing import Any

import attrs

from jrs.records.fields import check_fields


@attrs.frozen
class Stored:
    """The base of every stored type.

    A newer version may add fields that an older one can ignore. The older one keeps them when it
    writes the value again (`attrs.evolve`), so that nothing is lost while both run in one cluster.

    Raises:
        InvalidInput: when it is made, for what could not be read back; see `check_fields`.
    """

    unknown: dict[str, Any] | None = attrs.field(default=None, kw_only=True, repr=False, hash=False)
    """Fields that a newer version has written, as plain JSON; None if there are none."""

    def __attrs_post_init__(self) -> None:
        check_fields(self)

    def least_reader(self) -> int:
        """Return the version of its type that a reader has to know to act on this value.

        To override where a value of a newer form must not be read as one of an older form. An
        older version then refuses the record by name, and holds the job.
        """
        return 1
