"""Layout: the path of a key in ZooKeeper's tree.

::

    ROOT/CLUSTER/format                 the marker: the format of the cluster
    ROOT/CLUSTER/latch/CANDIDATE        the candidates, in the order of creation
    ROOT/CLUSTER/map                    written when a directory is created
    ROOT/CLUSTER/map/DIRECTORY          a key up to its first slash; written by every change below
    ROOT/CLUSTER/map/DIRECTORY/SHARD    written by every deletion below
    ROOT/CLUSTER/map/DIRECTORY/SHARD/NAME    the rest of the key, with its value

- A key's path follows from the key alone, so a commit needs no look-up.
- A directory has 256 shards: with a million keys in it, no znode has more than about 4,300
  children, and no list of names comes near a mebibyte. One request reads all shards.
- Writing the *directory* notifies watchers of a change below.
- The *shard's* version shows a commit that no key below was deleted since a record was read. A
  record's own version cannot show that, because it begins at 0 again when the znode is deleted and
  created.
"""

from __future__ import annotations

import zlib

import attrs

from jrs.contract.operations import EPOCH_KEY

SHARDS = tuple(f"{number:02x}" for number in range(256))
_EPOCH_SHARD = "epoch"
"""The shard of the fence's record alone, so that no other deletion affects the record."""
_LOOSE = "~"
"""The directory of the keys without a slash; no name of a key has a tilde."""


def directory_of(key: str) -> str:
    """Return the name of a key's directory."""
    name, slash, _ = key.partition("/")
    return _escaped(name) if slash else _LOOSE


def shards_of(directory: str) -> tuple[str, ...]:
    """Return the names of a directory's shards."""
    return (*SHARDS, _EPOCH_SHARD) if directory == directory_of(EPOCH_KEY) else SHARDS


def prefix_of(directory: str) -> str:
    """Return the prefix of the keys in a directory."""
    return "" if directory == _LOOSE else f"{_plain(directory)}/"


def key_of(directory: str, name: str) -> str:
    """Return the key of the znode `name` in a directory."""
    return prefix_of(directory) + _plain(name)


def touches(directory: str, prefix: str) -> bool:
    """Return whether keys in the directory can start with `prefix`."""
    own = prefix_of(directory)
    if not own:
        return "/" not in prefix
    return own.startswith(prefix) or prefix.startswith(own)


def _escaped(rest: str) -> str:
    return f"~{rest}" if rest in (".", "..") else rest.replace("/", "~")


def _plain(name: str) -> str:
    return name[1:] if name.startswith("~") else name.replace("~", "/")


@attrs.frozen
class Layout:
    """The paths of one cluster."""

    root: str
    cluster: str

    @property
    def home(self) -> str:
        return f"{self.root}/{self.cluster}"

    @property
    def format(self) -> str:
        return f"{self.home}/format"

    @property
    def latch(self) -> str:
        return f"{self.home}/latch"

    @property
    def map(self) -> str:
        return f"{self.home}/map"

    def directory(self, name: str) -> str:
        return f"{self.map}/{name}"

    def shard(self, key: str) -> str:
        """Return the path of a key's shard."""
        shard = _EPOCH_SHARD if key == EPOCH_KEY else SHARDS[zlib.crc32(key.encode()) & 255]
        return f"{self.map}/{directory_of(key)}/{shard}"

    def record(self, key: str) -> str:
        """Return the path of a key's znode."""
        _, slash, rest = key.partition("/")
        return f"{self.shard(key)}/{_escaped(rest if slash else key)}"
