"""Copying files into objects, and back: many at a time, small ones together.

A name is used once: its prefix belongs to one writer, and a counter numbers what that has written.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.contract.pool import ThreadPool
from jrs.records.codec import decode, encode
from jrs.records.objects import StoredFile, StoredObject
from jrs.records.stored import Stored

from .objects import LARGE_AT_ONCE, MOST_PARTS, ONE_PUT, Objects

T = TypeVar("T")
S = TypeVar("S", bound=Stored)

_AT_ONCE = 32
"""Requests in flight, of small files."""
_SMALL = 1024 * 1024
"""Bytes of a file that is put into an object with others."""
_PACK = ONE_PUT - _SMALL
"""Bytes of such an object, at least if there is more: it is written in one request."""
PAGE = 100
"""Objects that are read or copied between two reports of progress, if they are not large."""
NONCE = 12
"""Digits of the random number in the name of a prefix."""
_WITHOUT_ATTEMPT = re.compile(r"[^/]+/data/(r|s[0-9]+)\.[^/]+/.+")
"""Copies, and manifests of snapshots."""
_SNAPSHOT = re.compile(r"[^/]+/data/s[0-9]+\.")
_COPY = re.compile(r"[^/]+/data/r\.[^/]+/.+")
_UNSAFE = re.compile(r"[^A-Za-z0-9._=-]+")


def attempts_prefix(epoch: int, attempt: int) -> str:
    """Return how the names of an attempt's prefixes begin, for `PrefixWriter`."""
    return f"e{epoch}.a{attempt}."


def copies_prefix() -> str:
    """Return the name of a new prefix for copies of another job's objects."""
    return f"r.{uuid.uuid4().hex[:NONCE]}"


def snapshot_prefix(number: int) -> str:
    """Return the name of a new prefix for the manifest of a snapshot."""
    return f"s{number}.{uuid.uuid4().hex[:NONCE]}"


def is_of_snapshot(place: str) -> bool:
    """Return whether a prefix, or what is below it, is that of the manifest of a snapshot."""
    return _SNAPSHOT.match(place) is not None


def is_of_copies(name: str) -> bool:
    """Return whether an object is a copy of another job's, or names such copies."""
    return _COPY.fullmatch(name) is not None


def needs_no_attempt(name: str) -> bool:
    """Return whether an object can be one of a job that was never started."""
    return _WITHOUT_ATTEMPT.fullmatch(name) is not None


def sha256_of(content: bytes | Path) -> str:
    """Return the digest of a content, or of that of a file, in hex."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with open(content, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class PrefixWriter:
    """Writes objects below a prefix that no other process uses; it writes no object twice.

    Args:
        job_id, name: the prefix is ``<job>/data/<name>``, and `name` was never used before.
    """

    def __init__(self, objects: Objects, job_id: str, name: str) -> None:
        self._objects = objects
        self.prefix = f"{job_id}/data/{name}"
        self._numbers = itertools.count()

    def put_record(self, what: str, value: Stored) -> StoredObject:
        """Write a stored value as an object of its own, and return how records name it."""
        content = encode(value)
        name = self.name(what, "manifest")
        self._objects.put(name, content)
        return StoredObject(name, len(content), sha256_of(content))

    def put_files(
        self,
        what: str,
        files: Mapping[str, Path],
        *,
        together: bool = False,
        known: dict[str, StoredFile] | None = None,
    ) -> tuple[StoredFile, ...]:
        """Write files; return how a manifest names them, in the order of their paths.

        Args:
            what: part of the objects' names, for people.
            files: the files of this host, by their paths in the manifest.
            together: put small ones into an object with others; else each has one of its own.
            known: what an earlier call has written of the same files, if its objects cannot have
                been removed since; those are not written again. The call adds to it.

        Raises:
            FileNotFoundError: one of the files is gone.
            Unavailable, StorageRefused: from the store; the call may be repeated.
        """
        alone, small = dict(files), {}
        if together:
            small = {path: real for path, real in files.items() if real.stat().st_size <= _SMALL}
            alone = {path: real for path, real in files.items() if path not in small}
        packs = [_call(self._put_pack, what, pack) for pack in _packs(small)]
        by_size: dict[int, list[Callable[[], list[StoredFile]]]] = {_AT_ONCE: []}
        by_size |= {MOST_PARTS: packs, LARGE_AT_ONCE: []}
        for path, real in alone.items():
            most = _most(real.stat().st_size, LARGE_AT_ONCE)
            by_size[most].append(_call(self._put_one, what, path, real, known))
        stored = [one for most, calls in by_size.items() for one in in_threads(calls, most)]
        found = itertools.chain.from_iterable(stored)
        return tuple(sorted(found, key=lambda one: one.path))

    def _put_one(
        self, what: str, path: str, real: Path, known: dict[str, StoredFile] | None
    ) -> list[StoredFile]:
        size, digest = real.stat().st_size, sha256_of(real)
        found = None if known is None else known.get(path)
        if found is not None and (found.size, found.sha256) == (size, digest):
            return [found]
        stored = StoredFile(path, self.name(what, real.name), size, digest)
        self._objects.put(stored.object, real if size > _SMALL else real.read_bytes())
        if known is not None:
            known[path] = stored
        return [stored]

    def _put_pack(self, what: str, files: Sequence[tuple[str, Path]]) -> list[StoredFile]:
        name, content, found = self.name(what, "pack"), bytearray(), []
        for path, real in files:
            data = real.read_bytes()
            found.append(StoredFile(path, name, len(data), sha256_of(data), offset=len(content)))
            content += data
        self._objects.put(name, bytes(content))
        return found

    def name(self, what: str, ending: str) -> str:
        """Return a name that nothing else has, another one at each call."""
        return f"{self.prefix}/{what}/{next(self._numbers):x}-{_safe(ending)}"


def name_of_copy(prefix: str, source: str) -> str:
    """Return the name below a prefix that a copy of an object has: the same at each call, and
    another one for each object."""
    return f"{prefix}/{sha256_of(source.encode())[:16]}-{_safe(source.rpartition('/')[2])}"


def _safe(ending: str) -> str:
    return _UNSAFE.sub("-", ending).lstrip("._=-")[-100:].lstrip("._=-") or "file"


def read_record(objects: Objects, kind: type[S], named: StoredObject) -> S:
    """Return the value that an object holds.

    Raises:
        CorruptRecord: it is missing, or is not what the record named.
        Unavailable, StorageRefused: from the store.
    """
    content = objects.get(named.name)
    where = f"{objects.url}/{named.name}"
    if content is None:
        raise CorruptRecord(f"{where} is missing, and a record names it")
    if len(content) != named.size or sha256_of(content) != named.sha256:
        raise CorruptRecord(f"{where} was changed since a record named it")
    return decode(kind, content, where)


def fetch(objects: Objects, files: Iterable[StoredFile], folder: Path) -> None:
    """Write files below a folder, with the content of their objects. Not synced.

    Raises:
        CorruptRecord: an object is missing, or was changed.
        FileExistsError: one of the files exists.
        Unavailable, StorageRefused: from the store; begin again, with an empty folder.
    """
    wanted: dict[str, list[StoredFile]] = {}
    for one in files:
        wanted.setdefault(one.object, []).append(one)
    for above in sorted({(folder / one.path).parent for group in wanted.values() for one in group}):
        above.mkdir(parents=True, exist_ok=True)
    by_size: dict[int, list[Callable[[], None]]] = {_AT_ONCE: [], MOST_PARTS: []}
    for group in wanted.values():
        most = _most(sum(one.size for one in group), MOST_PARTS)
        by_size[most].append(_call(_fetch_from, objects, group, folder))
    for most, calls in by_size.items():
        in_threads(calls, most)


def _fetch_from(objects: Objects, files: Sequence[StoredFile], folder: Path) -> None:
    small = [one for one in files if one.size <= ONE_PUT]
    for one, content in zip(small, contents(objects, small), strict=True):
        with _new_file(folder / one.path) as file:
            file.write(content)
    for one in files:
        if one.size > ONE_PUT:
            with _new_file(folder / one.path) as file:
                for part in _pieces(objects, one):
                    file.write(part)


def problems(
    objects: Objects, files: Iterable[StoredFile], done: Callable[[int, int], None]
) -> list[str]:
    """Return a line for each object that is missing, or whose files were changed; every byte is
    read.

    Args:
        done: called with how many of the objects were read, and how many there are.

    Raises:
        Unavailable, StorageRefused: from the store.
    """
    groups: dict[str, list[StoredFile]] = {}
    for one in files:
        groups.setdefault(one.object, []).append(one)
    by_size: dict[int, list[list[StoredFile]]] = {}
    for group in groups.values():
        most = _most(sum(one.size for one in group), LARGE_AT_ONCE)
        by_size.setdefault(most, []).append(group)
    found: list[str] = []
    read = 0
    for most, same in by_size.items():
        # Large ones take long: there are as many of them between two reports as are read at once.
        page = most if most == LARGE_AT_ONCE else PAGE
        for first in range(0, len(same), page):
            some = same[first : first + page]
            done(read, len(groups))
            lines = in_threads([_call(_problem, objects, group) for group in some], most)
            found += filter(None, lines)
            read += len(some)
    done(read, len(groups))
    return found


def _problem(objects: Objects, files: Sequence[StoredFile]) -> str:
    try:
        contents(objects, [one for one in files if one.size <= ONE_PUT])
        for one in files:
            if one.size > ONE_PUT:
                for _ in _pieces(objects, one):
                    pass  # It has to fit into memory nowhere.
    except CorruptRecord as error:
        return str(error)
    return ""


def contents(objects: Objects, files: Sequence[StoredFile]) -> list[bytes]:
    """Return the contents of files that one object holds.

    Raises:
        CorruptRecord: the object is missing, or was changed.
        Unavailable, StorageRefused: from the store.
    """
    found = {one.path: b"" for one in files}  # No range is empty.
    some = [one for one in files if 0 < one.size <= ONE_PUT]
    if some:
        parts = objects.parts(some[0].object, [(one.offset, one.size) for one in some])
        if parts is None:
            raise _missing(objects, some[0])
        found |= zip((one.path for one in some), parts, strict=True)
    for one in files:
        if one.size > ONE_PUT:
            found[one.path] = b"".join(_pieces(objects, one))
        elif len(found[one.path]) != one.size or sha256_of(found[one.path]) != one.sha256:
            raise _changed(objects, one)
    return [found[one.path] for one in files]


def _pieces(objects: Objects, one: StoredFile) -> Iterator[bytes]:
    """Yield the content of a large file, so that no request takes long."""
    digest = hashlib.sha256()
    for first in range(0, one.size, ONE_PUT):
        size = min(ONE_PUT, one.size - first)
        parts = objects.parts(one.object, [(one.offset + first, size)])
        if parts is None:
            raise _missing(objects, one)
        digest.update(parts[0])
        yield parts[0]
    if digest.hexdigest() != one.sha256:
        raise _changed(objects, one)


def _missing(objects: Objects, one: StoredFile) -> CorruptRecord:
    return CorruptRecord(f"{objects.url}/{one.object} is missing, and a manifest names it")


def _changed(objects: Objects, one: StoredFile) -> CorruptRecord:
    where = f"{objects.url}/{one.object}"
    return CorruptRecord(f"{where} was changed since a manifest named it ({one.path})")


def _new_file(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _most(size: int, in_parts: int) -> int:
    """Return how many objects of a size are copied at once.

    Args:
        in_parts: how many of those that need several requests.
    """
    if size <= _SMALL:
        return _AT_ONCE
    return MOST_PARTS if size <= ONE_PUT else in_parts


def in_threads(calls: Sequence[Callable[[], T]], most: int = _AT_ONCE) -> list[T]:
    """Make calls in threads, and return what they return. Once one has raised an error no further
    call begins, and that error is raised when those that have begun have ended.

    Raises:
        Unavailable: the system gives this process no thread.
    """
    if len(calls) < 2:
        return [call() for call in calls]
    found: dict[int, T] = {}
    left, taking, over = iter(enumerate(calls)), threading.Lock(), threading.Event()

    def work() -> None:
        try:
            while not over.is_set():
                with taking:
                    number, call = next(left, (-1, None))
                if call is None:
                    return
                found[number] = call()
        except BaseException:
            over.set()
            raise

    with ThreadPool(min(most, len(calls)), "jrs-objects") as pool:
        try:
            working = [pool.submit(work) for _ in range(min(most, len(calls)))]
            for one in working:
                one.exception()
        except RuntimeError as error:
            raise Unavailable(f"objects cannot be asked for now: {error}") from error
        finally:
            over.set()  # Also if this thread is interrupted.
    for one in working:
        one.result()
    return [found[number] for number in range(len(calls))]


def _call(function: Callable[..., T], *arguments: object) -> Callable[[], T]:
    return lambda: function(*arguments)


def _packs(files: Mapping[str, Path]) -> Iterator[list[tuple[str, Path]]]:
    pack: list[tuple[str, Path]] = []
    size = 0
    for path, real in files.items():
        pack.append((path, real))
        size += real.stat().st_size
        if size >= _PACK:
            yield pack
            pack, size = [], 0
    if pack:
        yield pack
