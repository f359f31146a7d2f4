"""Foreign texts: bounded when stored, escaped when printed, without secrets when made or printed.

Failures, reasons, names and paths come from jobs, users and disks. They can be of any size and
contain control sequences for a terminal, or the secret of a job. What is stored is read as it is: a
secret may occur in texts of jobs that do not have it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit, urlunsplit

from jrs.contract.masks import masked

LIMIT = 16 * 1024
"""The largest stored text, in bytes of its stored form (JSON, in ASCII)."""
MAP_LIMIT = 128 * 1024
"""The largest stored mapping of texts, in bytes of its stored form."""

_LEAST = 64
"""Bytes below which a text in a mapping is useless."""
_ENTRY = 8
"""Bytes of an entry's quotes, colon and comma, rounded up."""
_SHOWN = 80
_WITH_CONTAINER = {"abfs", "abfss", "wasb", "wasbs"}
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")

# C0, DEL and C1, Unicode line ends, marks that change the writing direction, surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]*)?")
"""A host of a URL, perhaps with its port."""
_OPTION = re.compile(r"[a-z]+=.*")


def bounded(text: str, limit: int = LIMIT) -> str:
    """Return `text` as `fitting` does, with secrets masked."""
    return fitting(masked(text), limit)


def fitting(text: str, limit: int = LIMIT) -> str:
    """Return `text`, or a note of the cut and the text's end, in at most `limit` stored bytes.

    The end stays, because a traceback names its error there. Idempotent.
    """
    end = text[-limit:]  # Each character takes at least one byte.
    if len(end) == len(text) and _stored(text) <= limit:
        return text
    # The longest possible note, so that the room for the end is known.
    room = limit - len(_note(len(text)))
    fewest, most = 0, max(0, min(len(end), room))
    while fewest < most:
        middle = (fewest + most + 1) // 2
        if _stored(end[-middle:]) <= room:
            fewest = middle
        else:
            most = middle - 1
    return _note(len(text) - fewest) + (end[-fewest:] if fewest else "")


def fitting_map(texts: Mapping[str, str], limit: int = MAP_LIMIT) -> dict[str, str]:
    """Return named texts in at most `limit` stored bytes. Each text is cut to fit, the last ones
    are left out if there are too many, and the names stay unchanged."""
    room, share = limit, max(_LEAST, limit // max(1, len(texts)) - _ENTRY)
    kept: dict[str, str] = {}
    for name, text in texts.items():
        text = fitting(text, max(_LEAST, min(LIMIT, share - _stored(name))))
        room -= _stored(name) + _stored(text) + _ENTRY
        if room < 0:
            break
        kept[name] = text
    return kept


def printable(text: str) -> str:
    """Return `text` as one line that is safe to print: control characters, line ends and lone
    surrogates become the escapes of a Python literal. Secrets are masked."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], masked(text))


def is_printable(text: str) -> bool:
    """Return whether `printable` would escape nothing in `text`."""
    return _UNPRINTABLE.search(text) is None


def one_line(text: str) -> str:
    """Return `text` with each run of spaces and line ends as one space."""
    return " ".join(text.split())


def counted(number: int, one: str, several: str) -> str:
    """Return a number with its noun: 1 batch, 2 batches."""
    return f"{number} {one if number == 1 else several}"


def when(stamp: float) -> str:
    """Return a moment, in seconds since 1970, for people: in UTC."""
    try:
        return datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{stamp:g} s"  # Not a valid date: the clock was wrong.


def span(seconds: float) -> str:
    """Return a duration for people, in its two largest units: ``1 d 2 h``, ``3 min 5 s``."""
    left, parts = max(0, round(seconds)), []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def size_text(size: float) -> str:
    """Return a number of bytes for people."""
    unit = 0
    while size >= 1024 and unit < len(_SIZES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_SIZES[unit]}" if unit else f"{size:.0f} B"


def shown(value: object) -> str:
    """Return a short form of any refused value, for a message."""
    try:
        text = repr(value)
    except Exception:  # A number of too many digits, or a failing `__repr__` of a user's class.
        return f"a {type(value).__qualname__} that cannot be shown"
    if len(text) <= _SHOWN:
        return text
    length = len(value) if isinstance(value, str) else len(text)
    return f"{text[:_SHOWN]}… ({length:,} characters)"


def error_text(error: BaseException) -> str:
    """Return the type and the text of any exception; that of a user's class may fail."""
    try:
        said = str(error)
    except Exception as failed:
        said = f"its text cannot be read: {type(failed).__name__}"
    return f"{type(error).__name__}: {said}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for the end of a message; empty if nothing known is similar."""
    close = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def _stored(text: str) -> int:
    return len(json.dumps(text)) - 2


def _note(cut: int) -> str:
    return f"[{cut} characters cut] "


def redacted(url: str) -> str:
    """Return `url` without user, password and query, for messages and logs.

    It may be behind the scheme of a backend that wraps another one: ``recorded:etcd://…``. What may
    be a part of a password, because the URL is misspelled, is left out as well. The container of a
    storage on Azure, which is written as a user is, stays.
    """
    wrapper, colon, rest = url.partition(":")
    if colon and not rest.startswith("/") and "://" in rest:
        return f"{wrapper}:{redacted(rest)}"
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{wrapper}://…"
    if misspelled(url):
        return f"{wrapper}://…"
    user, at, hosts = parts.netloc.rpartition("@")
    names = hosts.split(",")
    host = ",".join(
        name if _HOST.fullmatch(name) else f"{name.partition(':')[0]}:…" for name in names
    )
    if parts.scheme in _WITH_CONTAINER and ":" not in user:
        host = user + at + host
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def misspelled(url: str) -> bool:
    """Return whether the user or the password of `url` seems to contain an unescaped / ? or #, so
    that a part of it would be taken for a host, a path or an option."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() == "file" or url.startswith("/"):
        return False  # A folder.
    authority = re.split("[/?#]", rest.removeprefix("//"), maxsplit=1)[0]
    if not rest.startswith("//") or not authority:
        return "@" in url
    path, _, query = rest[2 + len(authority) :].partition("?")
    hosts = all(_HOST.fullmatch(name) for name in authority.rpartition("@")[2].split(","))
    options = all(_OPTION.fullmatch(one) for one in query.split("&"))
    return "@" in path or ("@" in query and not (hosts and options))


def with_reason(text: str, reason: str) -> str:
    """Return a text and the reason of what it says, if there is one."""
    return f"{text}: {reason}" if reason else text
