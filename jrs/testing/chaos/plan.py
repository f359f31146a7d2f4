"""The plan of a chaos run, and the decorator that makes a test of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.records import policies
from jrs.testing.chaos.faults import SCHEMES, Nemesis

F = TypeVar("F", bound=Callable[..., Any])


def _backends(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _has_backends(plan: object, field: attrs.Attribute[Any], given: tuple[str, ...]) -> None:
    for name in given:
        if name not in SCHEMES:
            known = ", ".join(SCHEMES)
            raise InvalidInput(f"no chaos run has the backend {shown(name)}: {known}")
    if not given or len(set(given)) < len(given):
        raise InvalidInput(f"backend must have each name once, and one at least: {shown(given)}")


def _is_nemesis(plan: object, field: attrs.Attribute[Any], given: object) -> None:
    if not isinstance(given, Nemesis):
        raise InvalidInput(
            f"nemesis must be nemeses joined by |, such as kill(every=2) | pause(3), "
            f"not {shown(given)}"
        )


def _is_whole(plan: object, field: attrs.Attribute[Any], given: object) -> None:
    if type(given) is not int:
        raise InvalidInput(f"{field.name} must be a whole number, not {shown(given)}")


def _is_not_negative(plan: object, field: attrs.Attribute[Any], given: int) -> None:
    if given < 0:
        raise InvalidInput(f"{field.name} must not be negative: {given}")


def _has_texts(plan: object, field: attrs.Attribute[Any], given: object) -> None:
    if not isinstance(given, (list, tuple)) or not all(isinstance(word, str) for word in given):
        raise InvalidInput(f"{field.name} must be a list of texts, not {shown(given)}")


def _has_variables(plan: object, field: attrs.Attribute[Any], given: object) -> None:
    if not isinstance(given, Mapping) or not all(
        isinstance(word, str) for pair in given.items() for word in pair
    ):
        raise InvalidInput(f"{field.name} must be texts by names, not {shown(given)}")


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

    masters: int = attrs.field(default=3, validator=[_is_whole, _is_not_negative])
    backend: tuple[str, ...] = attrs.field(
        default=("file",), converter=_backends, validator=_has_backends
    )
    seconds: float = attrs.field(default=60.0, validator=policies.seconds)
    seed: int = attrs.field(default=0, validator=_is_whole)
    nemesis: Nemesis = attrs.field(factory=Nemesis, validator=_is_nemesis)
    ttl: float = attrs.field(default=2.0, validator=policies.seconds)
    members: int = attrs.field(default=1, validator=policies.count())
    timeout: float = attrs.field(default=120.0, validator=policies.seconds)
    options: Sequence[str] = attrs.field(default=(), validator=_has_texts)
    environment: Mapping[str, str] = attrs.field(factory=dict, validator=_has_variables)


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
