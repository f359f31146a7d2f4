"""The formats of a cluster that this version of jrs works with."""

from __future__ import annotations

from jrs.contract.errors import UnsupportedVersion

OLDEST_FORMAT = 2
"""The oldest format of a cluster that this version works with. Format 1 is the format of 0.1,
before records could be extended; opening such a cluster converts it, if no master runs. See
docs/upgrading.md."""


NEWEST_FORMAT = 7
"""The newest format that this version works with, and the format of the clusters it creates."""


def read_marker(version: object, where: str) -> int:
    """Return the format that a cluster's marker names. For adapters that open a cluster.

    Raises:
        UnsupportedVersion: a newer jrs is needed.
    """
    if type(version) is not int or not 1 <= version <= NEWEST_FORMAT:
        raise UnsupportedVersion(
            f"{where} has format {version}; this jrs reads up to {NEWEST_FORMAT}: upgrade it"
        )
    return version
