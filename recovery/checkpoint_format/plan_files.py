"""The files that plan a batch: with them, Spark gives the batch the same input whenever it runs.

The offsets alone do not. They refer to the logs of the sources, and the commit before them says
where the batch begins. Spark syncs none of these files.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..files import permissions, transfer
from ..files.sync import sync as sync
from .listing import entries, newest

_MOST = 64 * 1024
"""Bytes of the texts that `texts` returns."""
_KEPT = 16 * 1024 * 1024
"""Bytes of the files, in all, that are kept until they are durable: those that say most. The rest,
such as compacted logs of a source, are only synced again."""


class PlanFiles:
    """The plans of one checkpoint's batches, which are made durable one after the other."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._batch = -1
        self._names: list[str] = []
        self._durable: set[str] = set()
        """The files that were found for that batch: all of them are synced."""
        self._tried = -1
        self._contents: dict[str, bytes] = {}
        """The files of the batch that was tried, and which may have to be written again."""

    def make_durable(self, batch: int) -> list[str]:
        """Sync what plans a batch. Return the files, relative to the checkpoint, that were not
        synced for a batch before it: those that say most come first.

        Raises:
            FileNotFoundError: the checkpoint is gone.
            OSError: not all is durable; the call may be repeated.
        """
        if batch != self._batch:
            # None of these files changes once it is there.
            found = [
                name
                for name in _of_batch(self._checkpoint, batch)
                if name in self._durable or (self._checkpoint / name).is_file()
            ]
            names = [name for name in found if name not in self._durable]
            self._write_out(batch, names)
            self._batch, self._names, self._durable = batch, names, set(found)
        return self._names

    def _write_out(self, batch: int, names: Collection[str]) -> None:
        """Sync files. If that has failed, write them again first.

        After an error of writing, Linux may have dropped what it was to write, and reports the
        error once: the next sync of the same file succeeds all the same.
        """
        if batch != self._tried:
            self._tried, self._contents = batch, {}
        for name, data in self._contents.items():
            _write_again(self._checkpoint / name, data)
        room = _KEPT - sum(map(len, self._contents.values()))
        for name in names:
            path = self._checkpoint / name
            with suppress(FileNotFoundError):  # Spark removes old entries.
                if name not in self._contents and path.stat().st_size <= room:
                    self._contents[name] = path.read_bytes()
                    room -= len(self._contents[name])
        _sync(self._checkpoint, names)
        self._contents = {}


def of_batch(checkpoint: Path, batch: int) -> list[str]:
    """Return the files that plan a batch, relative to the checkpoint: those that there are."""
    return [name for name in _of_batch(checkpoint, batch) if (checkpoint / name).is_file()]


def texts(checkpoint: Path, names: Collection[str]) -> dict[str, str]:
    """Return the content of the first files, as many as are small enough together."""
    found: dict[str, str] = {}
    left = _MOST
    for name in names:
        with suppress(FileNotFoundError, UnicodeDecodeError):
            data = (checkpoint / name).read_bytes()
            left -= len(data)
            if left < 0:
                break
            found[name] = data.decode("utf-8")
    return found


def restore(checkpoint: Path, batch: int, files: Mapping[str, str]) -> bool:
    """Write the files of a batch's plan that are missing, or have another content; return whether
    the checkpoint has the batch. Durable. Nothing is written once the batch is committed.

    Raises:
        OSError: a file cannot be read or written now; the call may be repeated.
    """
    if newest(checkpoint / "commits") >= batch:
        return True
    written = []
    for name, text in files.items():
        path = checkpoint / name
        with suppress(FileNotFoundError):
            if path.read_bytes() == text.encode():
                continue
        permissions.make(path.parent, parents=True, exist_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        transfer.write(path, text.encode())
        written.append(name)
    _sync(checkpoint, written)
    return newest(checkpoint / "offsets") >= batch


# -- inside --------------------------------------------------------------------------------


def _of_batch(checkpoint: Path, batch: int) -> Iterator[str]:
    """Yield the files that plan a batch; the first ones need not be there."""
    yield from (f"offsets/{batch}", f"commits/{batch - 1}", "metadata")
    for source in entries(checkpoint / "sources"):
        yield from sorted(_below(checkpoint, f"sources/{source.name}"), key=_newest_first)
    for operator in entries(checkpoint / "state"):
        # What Spark notes of an operator, before it has state.
        yield from sorted(_below(checkpoint, f"state/{operator.name}/_metadata"))


def _sync(checkpoint: Path, names: Collection[str]) -> None:
    folders = {checkpoint}
    for name in names:
        with suppress(FileNotFoundError):  # Spark removes old entries; this one is of no use.
            sync(checkpoint / name)
        above = (checkpoint / name).parents
        folders.update(folder for folder in above if folder.is_relative_to(checkpoint))
    for folder in sorted(folders, reverse=True):
        sync(folder)


def _write_again(path: Path, data: bytes) -> None:
    """Replace a file by one of the same content, unless Spark has removed it."""
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
        transfer.write(path, data)
        path.chmod(mode)


def _below(checkpoint: Path, name: str) -> Iterator[str]:
    for entry in entries(checkpoint / name):
        if entry.is_dir():
            yield from _below(checkpoint, f"{name}/{entry.name}")
        else:
            yield f"{name}/{entry.name}"


def _newest_first(name: str) -> tuple[int, str]:
    number = name.rpartition("/")[2].removesuffix(".compact")
    return (-int(number) if number.isdecimal() else 0, name)
