"""Probing a store of objects: whether it does what the rule of commits needs.

What is written has to be read and listed at once, and what is deleted has to be gone. A gateway
that caches, or a replica that lags, would lose what a record names. Commits need no condition of a
request; only what is published at a place of the user's own does, so that is probed for it alone.
"""

from __future__ import annotations

from jrs.contract.errors import InvalidInput, StorageRefused, Unavailable
from jrs.contract.runtime import RUNTIME, Runtime

from .objects import Objects

_ROUNDS = 3


def probe(objects: Objects, runtime: Runtime = RUNTIME) -> None:
    """Write, read, list and delete a few small objects below ``.storage/probe``.

    Raises:
        InvalidInput: the store cannot be used: it refuses a call, or was seen to be stale.
        Unavailable: it does not answer.
    """
    try:
        for _ in range(_ROUNDS):
            _round(objects, f".storage/probe/{runtime.token()}")
    except StorageRefused as error:
        raise InvalidInput(f"jobs cannot keep their files in {objects.url}: {error}") from None
    except Unavailable as error:
        raise Unavailable(f"the storage does not answer: {error}") from None


def probe_conditions(objects: Objects, runtime: Runtime = RUNTIME) -> None:
    """Have the store refuse to write an object that exists; some gateways ignore the condition.

    Raises:
        InvalidInput: it overwrites the object all the same.
        Unavailable, StorageRefused: from the store.
    """
    name = f".storage/probe/{runtime.token()}"
    objects.create(name, b"")
    if objects.create(name, b"jrs"):
        objects.delete([name])
        raise InvalidInput(
            f"nothing can be published in {objects.url}: its server ignores that an object must "
            "not exist yet (If-None-Match); name the store itself, without a gateway"
        )
    objects.delete([name])


def _round(objects: Objects, name: str) -> None:
    if objects.get(name) is not None:
        raise _stale(objects, "it has an object that nobody has written")
    objects.put(name, b"jrs")
    if objects.get(name) != b"jrs":
        # Asked for before it was written: some gateways remember that for a while.
        raise _stale(objects, "an object that was just written cannot be read")
    if name not in {one.name for one in objects.under(".storage/probe")}:
        raise _stale(objects, "an object that was just written is not listed")
    objects.delete([name])
    if objects.get(name) is not None or any(
        one.name == name for one in objects.under(".storage/probe")
    ):
        raise _stale(objects, "an object that was just deleted is still there")


def _stale(objects: Objects, why: str) -> InvalidInput:
    return InvalidInput(
        f"jobs cannot keep their files in {objects.url}: {why}; name the store itself, without a "
        "cache or a replica in front of it"
    )
