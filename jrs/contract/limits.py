"""Limits: what a backend declares that it takes, and the check of a commit against that."""

from __future__ import annotations

import re
import threading
from typing import get_args

import attrs

from jrs.contract.errors import InvalidInput, TooLarge
from jrs.contract.inputs import check_is, check_text
from jrs.contract.operations import Create, Fence, Op, Update
from jrs.contract.texts import shown

_KEY = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_OPS = get_args(Op)


@attrs.frozen
class Capabilities:
    """Limits and guarantees of a backend. A call over a limit is refused before it is sent."""

    max_value: int
    """Largest value, in bytes."""
    max_ops: int
    """Most operations in one commit, not counting the fence."""
    max_key: int
    """Longest key, in characters."""
    min_ttl: float
    """The shortest ttl of a leadership, in seconds."""
    max_ttl: float
    """The longest, in seconds."""
    durable: bool
    """A commit that returned survives a power cut."""
    multi_process: bool
    """Several processes can open the same cluster."""
    multi_host: bool
    """Several hosts can."""
    may_omit: bool = False
    """A scan leaves out records that damage may have hit; `get` raises `CorruptRecord` for them."""


def is_key(text: str) -> bool:
    """Return whether a text has the form of a key, however long it is."""
    return _KEY.fullmatch(text) is not None


def check_key(key: str, limits: Capabilities) -> None:
    """Raise `InvalidInput` for what is no key, and `TooLarge` for a key that is too long."""
    if not isinstance(key, str):
        raise InvalidInput(f"not a key: {shown(key)}")
    if len(key) > limits.max_key:
        raise TooLarge(f"key of {len(key)} characters; limit {limits.max_key}")
    if not is_key(key):
        raise InvalidInput(f"not a key: {key!r} (names of A-Z a-z 0-9 . _ - joined by /)")


def check_range(prefix: str, after: str | None, limit: int | None) -> None:
    """Raise `InvalidInput` for what no scan can have as its prefix, its begin or its limit."""
    check_is(prefix, "prefix", str)
    if after is not None:
        check_is(after, "after", str)
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInput(f"limit must be a whole number, not {shown(limit)}")


def check_ttl(ttl: float, limits: Capabilities) -> None:
    """Raise `InvalidInput` if `ttl` is outside the declared range."""
    if not isinstance(ttl, (int, float)):
        raise InvalidInput(f"ttl must be a number of seconds, not {shown(ttl)}")
    if not limits.min_ttl <= ttl <= limits.max_ttl:
        raise InvalidInput(
            f"ttl of {shown(ttl)} s is outside the range of {limits.min_ttl:g} to "
            f"{limits.max_ttl:g} s"
        )


def check_candidate(candidate: str, stop: threading.Event) -> None:
    """Raise `InvalidInput` for what cannot campaign: who has no name, or cannot be stopped."""
    check_text(candidate, "the name of a candidate")
    check_is(stop, "stop", threading.Event)


def check_ops(ops: tuple[Op, ...], fence: Fence | None, limits: Capabilities) -> None:
    """Raise `InvalidInput` or `TooLarge` for a commit that cannot be sent."""
    if fence is not None and not isinstance(fence, Fence):
        raise InvalidInput(f"not a Fence: {shown(fence)}")
    if len(ops) > limits.max_ops:
        raise TooLarge(f"{len(ops)} operations in one commit; limit {limits.max_ops}")
    seen = set()
    for op in ops:
        if type(op) not in _OPS:
            check_is(op, "an operation", *_OPS)
        key = op.key
        if type(key) is not str or len(key) > limits.max_key or not _KEY.fullmatch(key):
            check_key(key, limits)
        if key in seen:
            raise InvalidInput(f"two operations on {key!r} in one commit")
        seen.add(key)
        if isinstance(op, (Create, Update)):
            check_is(op.value, f"the value of {key!r}", bytes)
            if len(op.value) > limits.max_value:
                raise TooLarge(
                    f"value of {key!r} has {len(op.value):,} bytes; limit {limits.max_value:,}"
                )
