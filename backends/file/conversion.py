"""Conversion of a folder of the first releases, offline and without changes to its logs.

The first releases refuse every record with an unknown field, so they cannot share a folder with a
newer version. After the conversion they refuse to open the folder, with one line, and write
nothing. A crash at any point leaves a folder that the next conversion completes.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from jrs.contract.errors import CorruptRecord, WrongState
from jrs.contract.formats import OLDEST_FORMAT
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import MasterInfo

from .format.folder import mark_format
from .leader import held_lock
from .replica import NEVER, Replica

_CLOCKS_DIFFER = 60.0
"""Seconds by which a clock may have been set since a master started."""


def convert(root: Path) -> None:
    """Convert a folder from format 1 to format 2. Idempotent.

    Raises:
        WrongState: a process of the older jrs still works in the folder.
    """
    parent = root / "clusters"
    clusters = [p for p in parent.iterdir() if p.is_dir()] if parent.is_dir() else []
    for cluster in clusters:
        _refuse_leader(root, cluster / "leader")
        if (cluster / "log").is_dir() and any((cluster / "log").iterdir()):
            _refuse_masters(root, cluster / "log")
    mark_format(root, OLDEST_FORMAT)


def _refuse_leader(root: Path, folder: Path) -> None:
    if (name := held_lock(folder)) is not None:
        raise WrongState(
            f"{root} was made by an older jrs, and a master of it still leads ({name}): stop all "
            "processes of the older jrs, then start again"
        )


def _refuse_masters(root: Path, log: Path) -> None:
    replica = Replica(log, seal_at=NEVER)
    try:
        replica.catch_up()
        records = replica.page(keys.MASTERS, None, 10_000)
    except CorruptRecord:
        records = []  # fsck reports the damage; a master could not work in a damaged log either.
    finally:
        replica.close()
    for record in records:
        try:
            master = decode(MasterInfo, record.value, record.key)
        except CorruptRecord:
            continue
        if master.host == socket.gethostname() and _is_alive(master):
            raise WrongState(
                f"{root} was made by an older jrs, and its master {master.name!r} (process "
                f"{master.pid}) is alive: stop all processes of the older jrs, then start again"
            )


def _is_alive(master: MasterInfo) -> bool:
    """Return whether the master's process exists and is not a later one with the same pid."""
    try:
        ticks = int(Path(f"/proc/{master.pid}/stat").read_text().rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return False
    began = time.time() - up + ticks / os.sysconf("SC_CLK_TCK")
    return master.pid != os.getpid() and began <= master.started_at + _CLOCKS_DIFFER
