"""Whether a server listens where the master of a Spark cluster should be.

Spark itself takes a minute to find that out, and then fails the call that starts the session.
"""

from __future__ import annotations

import socket

from jrs.contract.errors import CannotStartHere

ANSWERS = 10.0
"""Seconds in which a server answers."""
REMEDY = "start the cluster's master, or correct spark.master and the network"
"""What to do if none does."""


def require_reachable(master: str) -> None:
    """Raise `CannotStartHere` if no server listens at any address of a cluster's master.

    Masters whose URL names no address, as that of YARN, are left to Spark.
    """
    if failed := unreachable(master):
        raise CannotStartHere(
            f"{master} cannot be reached from this host: {'; '.join(failed)}; {REMEDY}"
        )


def unreachable(master: str) -> list[str]:
    """Return why none of a master's addresses can be reached; empty if one can, or none is
    known."""
    failed = []
    for host, port in places(master):
        try:
            socket.create_connection((host, port), ANSWERS).close()
            return []
        except OSError as error:
            failed.append(f"{host}:{port}: {error.strerror or error}")
    return failed


def places(master: str) -> list[tuple[str, int]]:
    """Return the addresses that a master's URL names; empty if it names none that is known."""
    kind, colon, rest = master.partition("://")
    if not colon or kind not in ("spark", "k8s"):
        return []
    found = []
    for one in rest.rpartition("//")[2].split(","):
        host, _, port = one.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            return []  # Spark says what is wrong with it.
        found.append((host.strip("[]"), int(port)))
    return found
