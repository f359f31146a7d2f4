"""Whether the master of a Spark cluster can be reached from this host.

Spark itself takes a minute to find out that no server listens there, and then fails the call that
starts the session. It fails in the same way where one listens and registers no application: a
standby, while the cluster fails over.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from jrs.contract.errors import CannotStartHere

from .host_configuration import is_local

ANSWERS = 10.0
"""Seconds in which a server answers."""
REMEDY = "start the cluster's master, or correct spark.master and the network"
"""What to do if none does."""
_GIVEN_UP = re.compile(
    "All masters are unresponsive|Spark context stopped while waiting for backend"
    "|Cannot call methods on a stopped SparkContext"
)
"""What Spark says if no master registers the application, in the call or from a thread of its own
that stops the session."""


def require_reachable(master: str) -> None:
    """Raise `CannotStartHere` if no server listens at any address of a cluster's master.

    Masters whose URL names no address, as that of YARN, are left to Spark.
    """
    if failed := unreachable(master):
        raise CannotStartHere(
            f"{master} cannot be reached from this host: {'; '.join(failed)}; {REMEDY}"
        )


@contextmanager
def starting(master: str) -> Iterator[None]:
    """Raise `CannotStartHere` where Spark gives a cluster's master up while it starts a session:
    nothing is wrong with the job."""
    try:
        yield
    except Exception as error:
        found = None if is_local(master) else _GIVEN_UP.search(_text(error))
        if found is None:
            raise
        raise CannotStartHere(
            f"{master} has registered no application: {found[0]}; {REMEDY}"
        ) from error


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


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
        return ""  # py4j asks the JVM for it, which may be gone.
