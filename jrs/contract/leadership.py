"""Leadership: a won campaign, and the lifeline that ties processes to it."""

from __future__ import annotations

import abc
import threading
from types import TracebackType
from typing import Self

import attrs

from jrs.contract.operations import Fence


@attrs.frozen
class Lifeline:
    """Two file descriptors that tie a leader's processes to its leadership, even if it hangs.

    Only the process that ends an attempt inherits them.

    Attributes:
        until: eight bytes, a native double: the moment, by `lease_time` of this host (see
            `jrs.contract.clock`), at which the leadership ends unless the leader moves it by then.
            Attempts must have ended soon after it.
        held: while a process keeps this open, no other master leads before the ttl is over, even
            if the leader has died.
    """

    until: int
    held: int


class Leadership(abc.ABC):
    """A won campaign.

    Attributes:
        epoch: the integer of this leadership; greater than every earlier one.
        fence: the fence of every write of this leader.
        lost: set once this leadership is known to be over, for any reason.
        lifeline: set where a successor may be on another host and cannot reach the attempts of a
            leader that hangs or was cut off.
    """

    epoch: int
    fence: Fence
    lost: threading.Event
    lifeline: Lifeline | None = None

    def remaining(self) -> float | None:
        """Return the seconds after which this leadership ends unless it is renewed; None where it
        does not end by time."""
        return None

    @abc.abstractmethod
    def resign(self) -> None:
        """Hand over at once. Idempotent, and harmless if the leadership is already lost."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.resign()
