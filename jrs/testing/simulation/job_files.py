"""The files of jobs in an exploration: seen, put back, and changed at switch points.

Python reports calls of the operating system to audit hooks (PEP 578), so the code under test is as
it ships. Removing a tree counts as one change.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

_CHANGES = frozenset(
    {"os.mkdir", "os.rename", "os.rmdir", "os.remove", "os.link", "os.symlink", "shutil.rmtree"}
)
_LOOKS = frozenset({"os.listdir", "os.scandir"})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

Saved = list[tuple[str, str, bytes]]
"""Paths, each with its kind (d, f or l) and its content, or where a link leads."""


class JobFiles:
    """What is below one folder.

    Args:
        root: a relative path, so that records are the same wherever it is.
        changes: called before a change, with its name and its paths.
        looks: called before a look at files, with its path.
    """

    def __init__(
        self,
        root: Path,
        changes: Callable[[str, list[str]], None],
        looks: Callable[[str], None],
    ) -> None:
        self.root = root
        self._prefix = str(root)
        self._on_change, self._on_look = changes, looks
        self._is_mine = False

    def watch(self) -> None:
        """Report changes and looks from now on. It cannot be undone in this process."""
        sys.addaudithook(self._audit)
        for name in ("stat", "lstat", "readlink"):
            setattr(os, name, self._looking(getattr(os, name)))

    def _audit(self, event: str, given: tuple[Any, ...]) -> None:
        is_change = event in _CHANGES or (event == "open" and given[2] & _WRITES)
        if self._is_mine or not (is_change or event in _LOOKS or event == "open"):
            return
        if paths := [path for path in map(self._below, given[:2]) if path]:
            if is_change:
                self._on_change(event, paths)
            for path in paths:
                self._on_look(path)

    def _looking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def looking(path: Any, *given: Any, **options: Any) -> Any:
            if not self._is_mine and (below := self._below(path)):
                self._on_look(below)
            return call(path, *given, **options)

        return looking

    def _below(self, path: object) -> str | None:
        if not isinstance(path, (str, os.PathLike)):
            return None
        text = os.fspath(path)
        return text if isinstance(text, str) and text.startswith(self._prefix) else None

    def save(self) -> Saved:
        """Return all that there is."""
        with self._unseen():
            return list(self._walk(self._prefix))

    def _walk(self, folder: str) -> Iterator[tuple[str, str, bytes]]:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            if entry.is_symlink():
                yield entry.path, "l", os.readlink(entry.path).encode()
            elif entry.is_dir():
                yield entry.path, "d", b""
                yield from self._walk(entry.path)
            else:
                yield entry.path, "f", Path(entry.path).read_bytes()

    def restore(self, saved: Saved) -> None:
        """Put back what was saved."""
        if self.save() == saved:
            return
        with self._unseen():
            shutil.rmtree(self.root)
            self.root.mkdir()
            for path, kind, content in saved:
                if kind == "d":
                    os.mkdir(path, 0o700)
                elif kind == "l":
                    os.symlink(content.decode(), path)
                else:
                    Path(path).write_bytes(content)

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        self._is_mine = True
        try:
            yield
        finally:
            self._is_mine = False

    def digest(self) -> bytes:
        """Return a digest of all that there is."""
        return blake2b(repr(self.save()).encode(), digest_size=8).digest()

    def seen_at(self, path: str) -> bytes:
        """Return a digest of all that a call can learn about a path: what is there, or which of its
        folders are not."""
        with self._unseen():
            folders = [os.path.lexists(folder) for folder in Path(path).parents]
            found: Saved = []
            if os.path.isdir(path):
                found = list(self._walk(path))
            elif os.path.lexists(path):
                found = [(path, "f", Path(path).read_bytes())]
        return blake2b(repr((path, folders, found)).encode(), digest_size=8).digest()
