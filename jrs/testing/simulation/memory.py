"""What a simulated process remembers: a digest of all that its threads can reach.

It is taken when every thread of the process waits: what a thread has read and forgotten makes no
difference then. Objects are numbered in the order in which they are reached, so that equal digests
mean equal memory, with what is shared in it. What is no part of the process stands for itself: the
map, files, other processes. If something is found whose content cannot be told, there is no digest,
as inside of a ``for`` loop, whose iterator has no name. Not seen is what a call that waits was
given before: its other arguments. Nothing is called that the process has defined.
"""

from __future__ import annotations

import _thread
import contextlib
import dis
import itertools
import logging
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from enum import Enum
from functools import cache, partial
from hashlib import blake2b
from pathlib import PurePath
from typing import Any

from jrs.testing.simulation.attempts import SimAttempt, SimRunner
from jrs.testing.simulation.backend import SimLeadership, SimStore, SimWatch
from jrs.testing.simulation.failover import Simulation
from jrs.testing.simulation.primitives import SimLock
from jrs.testing.simulation.scheduler import Actor, Process, Scheduler
from jrs.testing.simulation.setting import Setting

_ATOMS = (type(None), bool, int, float, str, bytes, complex, type(...), type(NotImplemented))
_BY_TEXT = (PurePath, date, timedelta, itertools.count)
_BY_NAME = (
    *(type, types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType),
    *(types.WrapperDescriptorType, types.CodeType, logging.Logger, types.TracebackType),
)
_REAL_LOCKS = (_thread.LockType, _thread.RLock)
_OUTSIDE = (Scheduler, SimStore, Setting, Simulation, SimRunner, Process)


class Untold(Exception):
    """Raised for what cannot be told."""


class Memory:
    """What can be reached from some roots.

    Attributes:
        digest: of all that.
        locks: in the order in which they were reached.

    Raises:
        Untold: there is something whose content cannot be told.
    """

    def __init__(self, actors: list[Actor], more: Iterable[object]) -> None:
        self.locks: list[SimLock] = []
        self._actors = actors
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []
        self._told: list[str] = []
        for actor in actors:
            self._tell((actor.name, actor.until, actor.waits_for, actor.thread))
            for frame in _frames(actor):
                self._tell(frame)
        for root in more:
            self._tell(root)
        self.digest = blake2b("\n".join(self._told).encode(), digest_size=8).digest()

    def _tell(self, one: object) -> None:
        left: list[Iterator[object]] = [iter((one,))]
        while left:
            for found in left[-1]:
                if type(found) in _ATOMS:
                    self._told.append(repr(found))
                elif (number := self._numbers.get(id(found))) is not None:
                    self._told.append(f"#{number}")
                else:
                    self._numbers[id(found)] = len(self._numbers)
                    self._kept.append(found)
                    self._told.append(type(found).__qualname__)
                    left.append(iter(self._parts(found)))
                    break
            else:
                left.pop()
                self._told.append(".")

    def _parts(self, one: Any) -> Iterable[object]:
        """Return what an object consists of."""
        if isinstance(one, _BY_NAME):
            return (getattr(one, "__qualname__", None), getattr(one, "__name__", None),
                    *self._owner(one))  # fmt: skip
        if isinstance(one, _REAL_LOCKS):
            return ()  # Made before the simulation began; never held while others run.
        if isinstance(one, _BY_TEXT):
            return (str(one),)
        if isinstance(one, Enum):
            return (one.name,)
        if isinstance(one, _OUTSIDE):
            return (getattr(one, "name", None),)
        if isinstance(one, Actor):
            return (self._actors.index(one) if one in self._actors else None, one.is_over)
        if isinstance(one, SimAttempt):
            return (one.process, one.process.alive, one._on_end)
        if isinstance(one, SimWatch):
            return one.pending()
        if isinstance(one, SimLeadership):
            return (one.epoch, one.fence, one.process, one.lost)
        if isinstance(one, SimLock):
            self.locks.append(one)
            return (one.locked(),)
        if isinstance(one, threading.Thread):
            own = {k: v for k, v in vars(one).items() if k not in ("_stderr", "_invoke_excepthook")}
            return _flat(own)
        return self._parts_of_python(one)

    def _owner(self, one: object) -> tuple[object, ...]:
        owner = getattr(one, "__self__", None)
        return () if isinstance(owner, types.ModuleType) else (owner,)

    def _parts_of_python(self, one: Any) -> Iterable[object]:
        if isinstance(one, types.FunctionType):
            return (one.__module__, one.__qualname__, one.__code__.co_firstlineno,
                    *(one.__closure__ or ()), one.__defaults__, one.__kwdefaults__)  # fmt: skip
        if isinstance(one, types.MethodType):
            return (one.__func__, one.__self__)
        if isinstance(one, types.CellType):
            try:
                return (one.cell_contents,)
            except ValueError:
                return ()
        if isinstance(one, partial):
            return (one.func, one.args, one.keywords)
        if isinstance(one, types.FrameType):
            if any(first < one.f_lasti < end for first, end in _loops(one.f_code)):
                raise Untold(f"the iterator of a loop in {one.f_code.co_qualname}")
            return (one.f_code.co_qualname, one.f_lasti, *_flat(one.f_locals))
        if isinstance(one, types.GeneratorType):
            return (one.__qualname__, one.gi_frame)
        if isinstance(one, weakref.ref):
            return (one(),)
        if isinstance(one, dict):
            return itertools.chain(_flat(one), self._attributes(one))
        if isinstance(one, (list, tuple, deque)):
            return itertools.chain(list(one), self._attributes(one))
        if isinstance(one, (set, frozenset)):
            return self._in_order(one)
        if isinstance(one, BaseException):
            return (one.args, vars(one))
        if type(one).__flags__ & _HEAP:
            return self._attributes(one)
        raise Untold(type(one).__qualname__)

    def _in_order(self, them: Iterable[Any]) -> list[object]:
        known: list[object] = list(them)
        key: Callable[[Any], Any] = lambda one: (  # noqa: E731 - used once
            (0, repr(one)) if type(one) in _ATOMS else (1, self._numbers.get(id(one)))
        )
        try:
            return sorted(known, key=key)
        except TypeError:
            raise Untold("a set of objects") from None

    def _attributes(self, one: Any) -> Iterator[object]:
        own: dict[str, object] | None = _own_of(one)
        if own:
            yield from _flat(dict(sorted(own.items())))
        for kind in type(one).__mro__:
            for name, slot in vars(kind).items():
                if isinstance(slot, types.MemberDescriptorType):
                    yield name
                    with contextlib.suppress(AttributeError):  # It is not set.
                        yield slot.__get__(one)


def _own_of(one: object) -> dict[str, object] | None:
    try:
        found: dict[str, object] = object.__getattribute__(one, "__dict__")
    except AttributeError:
        return None
    return found


@cache
def _loops(code: types.CodeType) -> tuple[tuple[int, int], ...]:
    """Return where the bodies of the ``for`` loops of a function are: in them it has an iterator
    that no name leads to."""
    return tuple(
        (one.offset, one.argval) for one in dis.get_instructions(code) if one.opname == "FOR_ITER"
    )


_HEAP = 1 << 9
"""The flag of a type that was not made in C."""


def _flat(them: dict[Any, Any]) -> Iterator[object]:
    return itertools.chain.from_iterable(list(them.items()))


def _frames(actor: Actor) -> Iterator[types.FrameType]:
    frame = actor.greenlet.gr_frame
    while frame is not None:
        yield frame
        frame = frame.f_back
