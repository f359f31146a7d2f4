"""Objects: those of one cluster's jobs, in a bucket of S3, Google Cloud Storage or Azure.

Every call has a time limit. A call that failed may be repeated: an object is only ever written with
the same content.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import attrs

from jrs.contract.errors import CorruptRecord, InvalidInput, StorageRefused, Unavailable
from jrs.contract.pool import ThreadPool
from jrs.contract.storage_place import CREDENTIALS
from jrs.contract.texts import printable

T = TypeVar("T")

# Imported inside functions: obstore, since it is an extra.

ONE_PUT = 5 * 1024 * 1024
"""Bytes up to which an object is written in one request. Larger ones are written in parts of that
size; what is left of those after a crash, only the bucket's lifecycle rule removes."""
MOST_PARTS = 6
"""Parts of objects that are in flight at once: each request has to end in time, also where all of
them share a slow connection. These need 9 Mbit/s."""
LARGE_AT_ONCE = 2
"""Objects that are written in parts at once."""
ONE_COPY = 256 * 1024 * 1024
"""Bytes up to which the store copies an object by itself, in one request, which has to end in time.
S3 copies none of more than 5 GiB so, and obstore has no request that copies a part."""

_TIMEOUT = timedelta(seconds=30)
"""Of one request."""
_PATIENCE = timedelta(seconds=60)
"""Of one call, with the requests that repeat a failed one."""
_RETRIES = 4
_PARTS = MOST_PARTS // LARGE_AT_ONCE
"""Parts of one object that are written at once."""
_NUMBERS = 10_000
"""Parts that an object may have."""
_PAGE = 1000
_STATUS = re.compile(r"status code: ([0-9]{3} [A-Za-z ]*)|\(code: ([0-9]{3})\)")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]{1,300})")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified container does not exist")
_NO_NAME = re.compile(
    r"Error parsing Path|contained empty path segment"
    r"|<Code>(KeyTooLongError|XMinioInvalidObjectName|InvalidUri|InvalidResourceName)</Code>"
)
"""What an error says about a name that no object can have."""
_ASKS_THE_MACHINE = re.compile(r"token request|/latest/(api/token|meta-data)")
"""What an error says where no credentials are set, and the machine could not give its own."""
_NO_RIGHT = "permit this user to read, write, list and delete there"
_WRONG_KEYS = "correct the credentials"
_HINTS = {
    "InvalidAccessKeyId": _WRONG_KEYS,
    "SignatureDoesNotMatch": _WRONG_KEYS,
    "AuthenticationRequired": _WRONG_KEYS,
    "AuthenticationFailed": _WRONG_KEYS,
    "AuthorizationFailure": f"{_WRONG_KEYS}, or let the firewall of the account admit this host",
    "AccessDenied": _NO_RIGHT,
    "RequestTimeTooSkewed": "set the clock of this host",
}


@attrs.frozen
class Listed:
    """An object in a listing."""

    name: str
    size: int
    modified: float
    """Seconds since 1970, by the clock of the store."""


class Objects:
    """The objects of one cluster. Safe for use by many threads.

    Args:
        url: in its plain form; see `jrs.contract.storage_place`.
        cluster: the names of its objects are below it.
        opening: opens a store by its URL and its options, with obstore.
    """

    def __init__(
        self, url: str, cluster: str, opening: Callable[[str, str], Any] | None = None
    ) -> None:
        self.url = f"{url.partition('?')[0]}/{cluster}".rstrip("/")
        self.options = urlsplit(url).query
        """How the store is reached, as the query of a URL."""
        self._opening = opening or open_store
        self._store: Any = None
        self._lock = threading.Lock()
        self._copying = threading.BoundedSemaphore(LARGE_AT_ONCE)

    def bucket(self) -> Objects:
        """Return all objects of the bucket, those of other users as well."""
        parts = urlsplit(self.url)
        return Objects(f"{parts.scheme}://{parts.netloc}?{self.options}", "", self._opening)

    def in_bucket(self, name: str) -> str:
        """Return the name that an object has in the whole bucket."""
        return f"{urlsplit(self.url).path}/{name}".lstrip("/")

    def put(self, name: str, content: bytes | Path) -> None:
        """Write an object: `content`, or that of a file. Durable when it returns.

        Raises:
            Unavailable: it is not known to be written; the call may be repeated.
            StorageRefused: the same, and it will not help.
        """
        with self._errors("PUT", name):
            size = content.stat().st_size if isinstance(content, Path) else len(content)
            chunk = max(ONE_PUT, -(-size // _NUMBERS))
            self._open().put(name, content, chunk_size=chunk, max_concurrency=_PARTS)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one; return whether it was written. Durable.

        Raises:
            Unavailable: it is not known whether it was written; read it back.
            StorageRefused: it was not.
        """
        with self._errors("PUT", name):
            store = self._open()
            from obstore.exceptions import AlreadyExistsError

            try:
                store.put(name, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def get(self, name: str) -> bytes | None:
        """Return the content of an object; None if it does not exist.

        Raises:
            Unavailable, StorageRefused: from the store.
        """
        with self._errors("GET", name):
            try:
                return bytes(self._open().get(name).bytes())
            except FileNotFoundError as error:
                _raise_without_bucket(error)
                return None

    def parts(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Return parts of an object, by where each begins and how long it is; None if the object
        does not exist. Raises as `get`."""
        starts, lengths = [one[0] for one in ranges], [one[1] for one in ranges]
        with self._errors("GET", name):
            try:
                found = self._open().get_ranges(name, starts=starts, lengths=lengths)
            except FileNotFoundError as error:
                _raise_without_bucket(error)
                return None
            return [bytes(part) for part in found]

    def under(self, prefix: str = "") -> Iterator[Listed]:
        """Yield the objects whose names begin with ``<prefix>/``, in pages.

        Raises:
            Unavailable, StorageRefused: from the store.
        """
        with self._errors("LIST", prefix):
            for page in self._open().list(prefix or None, chunk_size=_PAGE):
                for one in page:
                    yield Listed(one["path"], one["size"], one["last_modified"].timestamp())

    def folders(self, prefix: str = "") -> list[str]:
        """Return the names that continue, up to their next ``/``, below a prefix: with none, the
        ids of the jobs, and what else is there. Raises as `under`."""
        with self._errors("LIST", prefix):
            found = self._open().list_with_delimiter(prefix or None)
            return sorted(one.rstrip("/") for one in found["common_prefixes"])

    def stat(self, name: str) -> Listed | None:
        """Return an object as a listing would have it; None if it does not exist. Raises as
        `get`."""
        with self._errors("HEAD", name):
            try:
                found = self._open().head(name)
            except FileNotFoundError as error:
                _raise_without_bucket(error)
                return None
            return Listed(name, found["size"], found["last_modified"].timestamp())

    def copy(self, source: str, target: str, size: int) -> None:
        """Copy an object, in the store itself where that can be; else through this host, in parts.
        Durable when it returns; there is no part of a copy.

        Args:
            size: of the object, in bytes, as a record has it.

        Raises:
            CorruptRecord: it does not exist.
            Unavailable, StorageRefused: from the store; the call may be repeated.
        """
        with self._errors("COPY", source):
            try:
                # Azure may still be copying when it answers, and nothing tells the end of it.
                if size > ONE_COPY or self.url.startswith("abfss:"):
                    self._copy_by_hand(source, target)
                else:
                    self._open().copy(source, target)
            except FileNotFoundError as error:
                _raise_without_bucket(error)
                raise CorruptRecord(f"{self.url}/{source} is missing") from None

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that do not exist are passed over.

        Raises:
            Unavailable, StorageRefused: some may be left; the call may be repeated.
        """
        wanted = list(names)
        for first in range(0, len(wanted), _PAGE):
            some = wanted[first : first + _PAGE]
            with self._errors("DELETE", some[0]):
                try:
                    self._open().delete(some)
                except FileNotFoundError as error:
                    _raise_without_bucket(error)
                    self._delete_each(some)

    # -- inside ----------------------------------------------------------------------------

    def _copy_by_hand(self, source: str, target: str) -> None:
        store = self._open()
        size = store.head(source)["size"]

        def part(first: int) -> Any:
            length = min(ONE_PUT, size - first)
            return store.get_range(source, start=first, length=length) if length else b""

        if size <= ONE_PUT:
            store.put(target, bytes(part(0)))
            return
        # The thread reads one part ahead. obstore cannot read where it asks for a part to write.
        with self._copying, ThreadPool(1, "jrs-copy") as reader:
            parts = _ahead(reader, part, range(0, size, ONE_PUT))
            chunk = max(ONE_PUT, -(-size // _NUMBERS))
            store.put(target, parts, chunk_size=chunk, max_concurrency=_PARTS)

    def _delete_each(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                self._open().delete(name)
            except FileNotFoundError as error:
                _raise_without_bucket(error)

    def _open(self) -> Any:
        with self._lock:
            if self._store is None:
                self._store = self._opening(self.url, self.options)
            return self._store

    @contextmanager
    def _errors(self, what: str, name: str) -> Iterator[None]:
        """Turn every error of the store into one of jrs, in one line without secrets:
        `InvalidInput` if no repetition can help."""
        try:
            yield
        except (GeneratorExit, CorruptRecord, InvalidInput):
            raise
        except Exception as error:
            where = printable(f"{what} {self.url}/{name}" if name else f"{what} {self.url}")
            if isinstance(error, UnicodeError) or _NO_NAME.search(str(error)):
                raise InvalidInput(f"{where}: no object can have this name") from None
            why, hint = _reason(str(error), self.url.partition(":")[0])
            if hint:
                raise StorageRefused(f"{where}: {why}; {hint}") from None
            raise Unavailable(f"{where}: {why}") from None


def _ahead(reader: Executor, read: Callable[[int], T], what: Iterable[int]) -> Iterator[T]:
    """Yield what is read for each of the numbers, in their order; the next is read meanwhile."""
    begun: Future[T] | None = None
    for one in what:
        before, begun = begun, reader.submit(read, one)
        if before is not None:
            yield before.result()
    if begun is not None:
        yield begun.result()


def _reason(text: str, scheme: str) -> tuple[str, str]:
    """Return what a store's error says, and what to do; that is empty if repeating may help."""
    first = text.partition("\n")[0]
    code, status, said = _CODE.search(text), _STATUS.search(first), _MESSAGE.search(text)
    number = "" if status is None else (status[1] or status[2]).strip()
    why = " ".join(filter(None, (number, code[1] if code else "")))
    why = f"{why}: {said[1]}" if said else why
    why = printable(why or first.rpartition(" - ")[2][:300])
    if _ASKS_THE_MACHINE.search(first):
        return f"no credentials, and this machine has none of its own ({why})", _sources(scheme)
    if _NO_BUCKET.search(text.partition("\n\n")[0]):
        return why, "create the bucket or container, or name another one"
    hint = _HINTS.get(code[1] if code else "", "")
    return why, hint or (_NO_RIGHT if number[:3] in ("401", "403") else "")


def _sources(scheme: str) -> str:
    return f"credentials are taken from {CREDENTIALS[scheme]}"


def _raise_without_bucket(error: FileNotFoundError) -> None:
    """Raise the error again if the whole bucket is missing, not only the object."""
    if _NO_BUCKET.search(str(error).partition("\n\n")[0]):
        raise error


def open_store(url: str, query: str) -> Any:
    """Open a store by its URL and its options, as the query of one. No request is sent.

    Raises:
        InvalidInput: obstore is not installed, or the credentials or options are not of the form.
    """
    try:
        from obstore import store as stores
    except ImportError as error:
        raise InvalidInput(
            "a storage of objects needs obstore: pip install 'jrs[objects]'"
        ) from error
    options: dict[str, Any] = dict(parse_qsl(query))
    client = {
        "timeout": _TIMEOUT,
        "connect_timeout": timedelta(seconds=5),
        # Only where the user has named such an address.
        "allow_http": options.get("endpoint", "").startswith("http://"),
    }
    if url.startswith("gs:") and "endpoint" in options:
        options["base_url"] = options.pop("endpoint")  # As the client for that service calls it.
    retries = {"max_retries": _RETRIES, "retry_timeout": _PATIENCE}
    try:
        opening: Any = stores.from_url  # Typed by the scheme, which is a variable here.
        return opening(url, client_options=client, retry_config=retries, **options)
    except Exception as error:
        text = printable(str(error).partition("\n")[0][:300])
        raise InvalidInput(
            f"the storage {url} cannot be opened: {text}; {_sources(url.partition(':')[0])}"
        ) from None
