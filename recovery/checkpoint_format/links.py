"""Making a checkpoint of links to another one's files, while a zombie may still write there.

The zombie is cut off from the sinks, so its checkpoint stays as a crash would leave it; but its
files change while they are linked. So they are linked in an order in which nothing that counts can
be missing: Spark writes a batch's sources, state and commit before the plan of the next batch.
"""

from __future__ import annotations

from pathlib import Path

from ..files import permissions, transfer
from .checkpoint import is_sparks
from .listing import newest, number

_FIRST = ("offsets", "commits")


def link_checkpoint(source: Path, target: Path) -> None:
    """Make a folder with links to the files of a checkpoint; what is half written is left out.

    What a source of the user's own keeps is copied, because it may change; its pipes and sockets
    are left out.

    Raises:
        FileNotFoundError: the checkpoint, or a file of it, is gone: try again.
    """
    permissions.make(target)
    names = [path.name for path in sorted(source.iterdir())]
    for name in (*(log for log in _FIRST if log in names), *names):
        if name not in _FIRST or not (target / name).exists():
            _link(source / name, target / name, name)
    planned = newest(target / "offsets")
    if (target / "commits").is_dir():
        for path in sorted((target / "commits").iterdir()):
            batch = number(path.name)
            if batch is not None and batch > planned:
                path.unlink()  # Planned and committed since its plans were linked.


def _link(source: Path, target: Path, path: str) -> None:
    if source.is_dir() and not source.is_symlink():
        permissions.make(target)
        for inside in sorted(source.iterdir()):
            _link(inside, target / inside.name, f"{path}/{inside.name}")
    elif source.name.startswith(".") and source.name.endswith(".tmp"):
        pass
    elif is_sparks(path):
        transfer.link_tree(source, target)
    else:
        transfer.copy_tree(source, target)
