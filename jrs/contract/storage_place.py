"""The place that a user names as the storage: a folder of this host, or the URL of objects."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import printable, shown

WORK = "JRS_WORK"
"""The environment variable that names the folder of this host for the copies of objects."""
OPTIONS = {
    "s3": ("endpoint", "region", "virtual_hosted_style_request"),
    "gs": ("endpoint",),
    "abfss": ("endpoint",),
}
"""What the URL of each kind of store may say besides the place. Credentials are no part of it."""

CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "abfss": "AZURE_STORAGE_ACCOUNT_KEY",
}
"""The environment variables that the credentials of each kind of store are in."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = re.compile(r"file:", re.IGNORECASE)
_CONTROL = re.compile(r"[\0-\x1f\x7f]")


@attrs.frozen
class StoragePlace:
    """Where the files of jobs are.

    Attributes:
        root: the folder on this host. With objects it has only copies of them, and may be lost.
        url: of the objects; empty if the files are in the folder.
    """

    root: Path
    url: str = ""

    def __str__(self) -> str:
        return self.url or str(self.root)


def place_of(named: str | os.PathLike[str]) -> StoragePlace:
    """Return the place that a user has named.

    Raises:
        InvalidInput: it is no path, or a URL that jrs does not know; the message says what is one.
    """
    text = os.fspath(named) if isinstance(named, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise InvalidInput(f"a storage must be a path or a URL, not {shown(named)}")
    if _FILE.match(text):
        return StoragePlace(folder_of(text))
    if _URL.match(text) is None:
        return StoragePlace(Path(text).absolute())
    url = check_url(text)
    # Options may change, and the copies are still those of the same objects.
    name = hashlib.sha256(url.partition("?")[0].encode()).hexdigest()[:16]
    return StoragePlace(work_folder() / name, url)


def folder_of(url: str) -> Path:
    """Return the folder that a ``file:///path`` URL names.

    Raises:
        InvalidInput: it is not a URL, or names a host, options or a relative path. Another folder
            is never meant instead.
    """
    try:
        parts = urlsplit(url)
        path = unquote(parts.path, errors="surrogateescape")
    except ValueError:
        raise InvalidInput(_not_one(url)) from None
    if parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise InvalidInput(_not_one(url))
    if "?" in url or "#" in url:
        raise InvalidInput(
            f"a file URL takes no options: {url!r}; in a path, write ? as %3F and # as %23"
        )
    # `urlsplit` removes some of them without a word.
    if _CONTROL.search(url) or _CONTROL.search(path):
        raise InvalidInput(f"a file URL takes no control characters: {url!r}")
    return Path(path)


def _not_one(url: str) -> str:
    return f"not a file URL: {url!r}; write file:///absolute/path"


def is_url(named: str | Path) -> bool:
    """Return whether a user has named a URL of objects, and not a folder."""
    found = _URL.match(str(named))
    return found is not None and found[1].lower() != "file"


def checked(named: str | Path) -> str | Path:
    """Return what a user has named in its plain form: a folder, or the URL of objects. Raises as
    `place_of`."""
    place = place_of(named)
    return place.url or place.root


def check_url(url: str) -> str:
    """Return the URL of objects in its plain form.

    Raises:
        InvalidInput: it is none, or has a password or an option that jrs does not know.
    """
    where = f"the storage {printable(url)}"
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidInput(f"the storage is not a URL: {error}") from None
    if parts.password is not None or (parts.username is not None and parts.scheme != "abfss"):
        raise InvalidInput(
            "the URL of a storage has no room for credentials: set the environment variables of "
            f"the store instead, such as {CREDENTIALS.get(parts.scheme, CREDENTIALS['s3'])}"
        )
    if parts.scheme not in OPTIONS:
        known = ", ".join(f"{scheme}://" for scheme in OPTIONS)
        raise InvalidInput(f"{where} is not known: name a folder, or a URL with {known}")
    if not parts.netloc or parts.fragment:
        raise InvalidInput(f"{where} is not a URL of the form {parts.scheme}://BUCKET/PREFIX")
    if {".", ".."} & set(parts.path.split("/")):
        raise InvalidInput(f"{where} has a path with . or ..")
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name not in OPTIONS[parts.scheme]:
            raise InvalidInput(
                f"the storage has no option {printable(name)!r}: the options of "
                f"{parts.scheme}:// are {', '.join(OPTIONS[parts.scheme])}"
            )
    path = "/".join(part for part in parts.path.split("/") if part)
    plain = f"{parts.scheme}://{parts.netloc}/{path}".rstrip("/")
    return f"{plain}?{parts.query}" if parts.query else plain


def work_folder() -> Path:
    """Return the folder of this host for what it keeps of jobs; it need not exist."""
    named = os.environ.get(WORK)
    return Path(named).absolute() if named else Path(f"/var/tmp/jrs-{os.getuid()}")
