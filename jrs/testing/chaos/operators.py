"""Damage operators: the damage that a disk, a person or a copy can do to one file.

They act on bytes, lines, blocks and whole files, and do not know the format of any file.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs

from jrs.testing.chaos.truth import Role, Truth

SECTOR = 512
BLOCKS = (16, SECTOR, 4096)


@attrs.frozen
class Damage:
    """The damage of one file.

    Attributes:
        operator: its name.
        path: the file's path in the store's folder.
        data: the file's new content; None if the file is removed.
        detail: where the damage is, in words.
    """

    operator: str
    path: str
    data: bytes | None
    detail: str

    def __str__(self) -> str:
        return f"{self.operator} of {self.path} {self.detail}".strip()


Edit = Callable[[random.Random, bytes], tuple[bytes, str] | None]
"""Returns the new bytes and where they changed, or None if the operator does not apply."""


def choose(rng: random.Random, truth: Truth, foreign: Truth) -> Damage:
    """Return one damage that changes a file of `truth`; foreign files come from `foreign`.

    Most damage goes to the log and the files next to it, which have the records.
    """
    while True:
        role = rng.choices(list(Role), (45, 45, 5, 5))[0]
        paths = sorted(path for path, found in truth.roles.items() if found is role)
        if not paths:
            continue
        path = rng.choice(paths)
        data = truth.files[path]
        if rng.random() < 0.12:
            damage = _whole_file(rng, truth, foreign, path)
        else:
            name, edit = rng.choice(_EDITS)
            edited = edit(rng, data) if data else None
            damage = None if edited is None else Damage(name, path, *edited)
        if damage is not None and damage.data != data:
            return damage


# -- edits of bytes ------------------------------------------------------------------------


def _place(rng: random.Random, data: bytes) -> int:
    """Return an offset: anywhere, near the file's ends, or near the end of a line or sector."""
    size = len(data)
    near = rng.choice(("any", "any", "begin", "end", "line", "sector"))
    at = rng.randrange(size)
    if near == "begin":
        at = rng.randrange(min(size, 64))
    elif near == "end":
        at = size - 1 - rng.randrange(min(size, 200))
    elif near == "line":
        at = max(0, data.find(b"\n", at)) + rng.randint(-2, 2)
    elif near == "sector":
        at = at // SECTOR * SECTOR + rng.randint(-2, 2)
    return min(max(at, 0), size - 1)


def _flip(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    at, bit = _place(rng, data), rng.randrange(8)
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed), f"bit {bit} of byte {at}"


def _flip_last(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    at, bit = len(data) - 1, rng.randrange(8)
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed), f"bit {bit} of the last byte"


def _overwrite(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    at = _place(rng, data)
    size = min(rng.choice((1, 2, 8, 64, SECTOR)), len(data) - at)
    return data[:at] + rng.randbytes(size) + data[at + size :], f"bytes {at} to {at + size}"


def _cut(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    at = _place(rng, data)
    return data[:at], f"at byte {at} of {len(data)}"


def _cut_lines(rng: random.Random, data: bytes) -> tuple[bytes, str] | None:
    at = data.rfind(b"\n", 0, _place(rng, data)) + 1
    return (data[:at], f"behind a line, at byte {at} of {len(data)}") if at else None


def _zero(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    at = _place(rng, data)
    if rng.random() < 0.5:
        at = at // SECTOR * SECTOR
    size = min(rng.choice((1, 2, 16, SECTOR, SECTOR, 4096)), len(data) - at)
    return data[:at] + bytes(size) + data[at + size :], f"bytes {at} to {at + size}"


def _zero_tail(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    at = _place(rng, data)
    return data[:at] + bytes(len(data) - at), f"from byte {at} of {len(data)}"


def _append(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    more = rng.choice((b"\0" * rng.randint(1, 5000), rng.randbytes(rng.randint(1, 300)), b"\n"))
    return data + more, f"{len(more)} bytes"


# -- edits of lines and blocks -------------------------------------------------------------


def _pieces(rng: random.Random, data: bytes, by_line: bool) -> list[bytes]:
    if by_line:
        return _lines(data)
    size = rng.choice(BLOCKS)
    return [data[at : at + size] for at in range(0, len(data), size)]


def _lines(data: bytes) -> list[bytes]:
    pieces = [line + b"\n" for line in data.split(b"\n")]
    pieces[-1] = pieces[-1][:-1]
    return [piece for piece in pieces if piece]


def _rearranged(what: str, by_line: bool) -> Edit:
    def edit(rng: random.Random, data: bytes) -> tuple[bytes, str] | None:
        pieces = _pieces(rng, data, by_line)
        count = len(pieces)
        if count < 2:
            return None
        first = count - 1 - rng.randrange(min(6, count)) if rng.random() < 0.3 else (
            rng.randrange(count))  # fmt: skip
        many = rng.choice((1, 1, 2, 5, 40))
        chosen = pieces[first : first + many]
        unit = "lines" if by_line else f"blocks of {len(pieces[0])}"
        if what == "remove":
            del pieces[first : first + many]
        elif what == "double":
            second = first if rng.random() < 0.6 else rng.randrange(count)
            pieces[second:second] = chosen
        else:
            second = min(first + 1, count - 1) if rng.random() < 0.5 else rng.randrange(count)
            pieces[first], pieces[second] = pieces[second], pieces[first]
        return b"".join(pieces), f"{many} {unit} from {first} of {count}"

    return edit


_EDITS: list[tuple[str, Edit]] = [
    ("flip", _flip),
    ("flip", _flip),
    ("flip-last", _flip_last),
    ("overwrite", _overwrite),
    ("cut", _cut),
    ("cut", _cut),
    ("cut-lines", _cut_lines),
    ("zero", _zero),
    ("zero", _zero),
    ("zero-tail", _zero_tail),
    ("append", _append),
    *(
        (f"{what}-{'lines' if by_line else 'blocks'}", _rearranged(what, by_line))
        for what in ("remove", "double", "swap")
        for by_line in (True, False)
    ),
]


# -- whole files ---------------------------------------------------------------------------


def _whole_file(rng: random.Random, truth: Truth, foreign: Truth, path: str) -> Damage | None:
    role = truth.roles[path]
    kind = rng.choice(("remove-file", "empty-file", "older-file", "foreign-file", "other-file"))
    if kind == "remove-file":
        return Damage(kind, path, None, "")
    if kind == "empty-file":
        return Damage(kind, path, b"", "")
    if kind == "older-file":
        found = {f"version {n}": data for n, data in enumerate(truth.older[role])}
    elif kind == "foreign-file":
        suffix = path.rpartition(".")[2]
        found = {other: data for other, data in foreign.files.items()
                 if foreign.roles[other] is role and other.endswith(suffix)}  # fmt: skip
    else:
        found = {other: data for other, data in truth.files.items() if other != path}
    if not found:
        return None
    name = rng.choice(sorted(found))
    return Damage(kind, path, found[name], f"is {name}")
