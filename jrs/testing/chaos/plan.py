"""The plan of a chaos run, and the decorator that makes a test of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs

from jrs.contract.errors import InvalidInput
from jrs.testing.chaos.faults import SCHEMES, Nemesis

F = TypeVar("F", bound=Callable[..., Any])


def _backends(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@attrs.frozen
class Plan:
    """The settings of a chaos run.

    Attributes:
        masters: how many masters there are; each that dies is started again.
        backend: ``file``, ``etcd`` or ``zookeeper``; some of them: a run for each.
        seconds: most seconds of faults. They end sooner if every job has ended.
        seed: determines which faults strike whom, and when.
        nemesis: the faults.
        ttl: of the masters, in seconds.
        members: how many servers the backend has.
        timeout: seconds behind the faults in which every job has to end.
        options: further arguments of ``jrs master``.
        environment: variables of all masters and drivers, besides those of this process or in
            their place.
    """

    masters: int = 3
    backend: tuple[str, ...] = attrs.field(default="file", converter=_backends)
    seconds: float = 60.0
    seed: int = 0
    nemesis: Nemesis = attrs.field(factory=Nemesis)
    ttl: float = 2.0
    members: int = 1
    timeout: float = 120.0
    options: Sequence[str] = ()
    environment: dict[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for name in self.backend:
            if name not in SCHEMES:
                raise InvalidInput(f"no chaos run has the backend {name!r}: {', '.join(SCHEMES)}")
        if self.masters < 0 or self.members < 1 or self.seconds < 0:
            raise InvalidInput("a chaos run needs at least 1 member, and no negative numbers")


def chaos(**settings: Any) -> Callable[[F], F]:
    """Make a test that gets a `World`, once for each backend. The arguments are those of `Plan`.

    Example::

        @chaos(masters=3, backend=["file", "etcd"], seconds=30, nemesis=kill(every=2) | pause(3))
        def test_orders(world):
            world.submit("orders", "etl.jobs:orders", copies=20)
            world.check(once_per_job, no_overlap, nothing_lost, fenced, linearizable)
    """
    import pytest  # Not needed by those who use no pytest.

    plan = Plan(**settings)

    def decorate(test: F) -> F:
        pytest.mark.jrs_chaos(plan)(test)
        return test

    return decorate
