"""The ways to keep one job's result durable that the store is compared with.

A peer does what the store does for a job, durably dirty and then durably clean, with a body that
was encoded beforehand. None of them has a fence, an epoch or a checksum to pay for.
"""

from __future__ import annotations

import abc
import os
import sqlite3
import threading
from pathlib import Path

import lmdb


class Peer(abc.ABC):
    """One peer, in a folder of its own."""

    name: str

    @abc.abstractmethod
    def job(self, job_id: str, body: bytes) -> None:
        """Make the result durable as dirty, then durable as clean."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release what is open."""


class RawPair(Peer):
    """Two appends with an fdatasync each: what the disk allows one caller who keeps nothing."""

    name = "raw append + fdatasync, twice"

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def job(self, job_id: str, body: bytes) -> None:
        os.write(self._fd, body + b"\n")
        os.fdatasync(self._fd)
        os.write(self._fd, job_id.encode() + b" clean\n")
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class FilePerEntry(Peer):
    """One file per entry: temporary file, rename, and a rename to mark it; the folder synced."""

    name = "a durable file per entry"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "files"
        self._folder.mkdir()
        self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)

    def job(self, job_id: str, body: bytes) -> None:
        temporary, dirty = self._folder / f".{job_id}", self._folder / f"{job_id}_DIRTY.json"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, body)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, dirty)
        os.fsync(self._folder_fd)
        os.rename(dirty, self._folder / f"{job_id}.json")
        os.fsync(self._folder_fd)

    def close(self) -> None:
        os.close(self._folder_fd)


class Sqlite(Peer):
    """SQLite in WAL mode that syncs every commit; each thread has a connection of its own."""

    name = "SQLite (WAL, FULL)"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "peer.sqlite"
        self._local = threading.local()
        self._all: list[sqlite3.Connection] = []
        create_table(self._connection())

    def job(self, job_id: str, body: bytes) -> None:
        connection = self._connection()
        connection.execute("INSERT INTO results VALUES (?, 1, ?)", (job_id, body))
        connection.execute("UPDATE results SET dirty = 0 WHERE job = ?", (job_id,))

    def close(self) -> None:
        for connection in self._all:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = open_sqlite(self._path)
            self._all.append(connection)
        return connection


def open_sqlite(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def create_table(connection: sqlite3.Connection) -> None:
    """The body stands behind the flag; the dirty ones have an index of nothing but themselves."""
    connection.execute("CREATE TABLE results (job TEXT PRIMARY KEY, dirty INTEGER, body BLOB)")
    connection.execute("CREATE INDEX dirty ON results (job) WHERE dirty = 1")


class Lmdb(Peer):
    """LMDB with its defaults, which sync every transaction: one for the result, one to mark it."""

    name = "LMDB"

    def __init__(self, folder: Path) -> None:
        self._env = lmdb.open(str(folder / "lmdb"), map_size=8 << 30, max_dbs=2)
        self._results = self._env.open_db(b"results")
        self._dirty = self._env.open_db(b"dirty")

    def job(self, job_id: str, body: bytes) -> None:
        key = job_id.encode()
        with self._env.begin(write=True) as transaction:
            transaction.put(key, body, db=self._results, overwrite=False)
            transaction.put(key, b"", db=self._dirty)
        with self._env.begin(write=True) as transaction:
            transaction.delete(key, db=self._dirty)

    def close(self) -> None:
        self._env.close()
