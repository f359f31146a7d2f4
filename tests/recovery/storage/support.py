"""A store of objects, in memory or on a server, which can be made to fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from jrs.contract.storage_place import StoragePlace
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.storage.objects import Objects, open_store

URL = "s3://bucket/prefix"
CLUSTER = "test"


@attrs.frozen
class Calls:
    """The calls of jrs to a store."""

    _all: Store
    _store: Any

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self._all.calls[name] += 1
            self._all.refuse(name, arguments)
            return method(*arguments, **options)

        return call


class Store:
    """A store that counts its calls and can refuse them.

    Args:
        url: of a server; without one, the objects are in memory.

    Attributes:
        refuse: called with the name of each method and its arguments; what it raises the call
            raises.
    """

    def __init__(self, url: str = "") -> None:
        self.url = url or URL
        self._memory = None if url else MemoryStore()
        self.calls: Counter[str] = Counter()
        self.refuse: Callable[[str, tuple[Any, ...]], None] = lambda method, arguments: None
        self._store: Any = self._memory or Objects(url, CLUSTER)._open()

    def open(self, url: str, options: str) -> Calls:
        """Open the store as jrs does; in memory there is one, whatever its URL."""
        return Calls(self, self._memory or open_store(url, options))

    def fail(self, times: int, method: str = "put", text: str = "503 Slow Down") -> None:
        """Have the next calls of a method fail, as a store that is overloaded."""
        left = [times]

        def refuse(name: str, arguments: tuple[Any, ...]) -> None:
            if name == method and left[0] > 0:
                left[0] -= 1
                raise GenericError(f"Server returned non-2xx status code: {text}: <Error/>")

        self.refuse = refuse

    def names(self) -> list[str]:
        return sorted(one["path"] for page in self._store.list() for one in page)

    def damage(self, name: str) -> None:
        """Flip a bit of an object."""
        content = bytearray(self._store.get(name).bytes())
        content[len(content) // 2] ^= 1
        self._store.put(name, bytes(content))

    def remove(self, name: str) -> None:
        self._store.delete(name)


def objects(store: Store | None = None) -> Objects:
    store = store or Store()
    return Objects(store.url, CLUSTER, store.open)


def storage(root: Path, store: Store, cluster: str = CLUSTER) -> JobStorage:
    """Return the storage of a cluster whose objects are in `store`."""
    found = JobStorage(StoragePlace(root, store.url), cluster)
    found.objects = Objects(store.url, cluster, store.open)
    return found
