"""What a campaign wins, and what ties processes to it."""

from __future__ import annotations

import abc
import threading
from types import TracebackType
from typing import Self

import attrs

from jrs.contract.operations import Fence


@attrs.frozen
class Lifeline:
    """What ties processes of a leader to its leadership, also while the leader itself hangs.

    Both are file descriptors, to be inherited by whoever ends an attempt, and by nobody else.

    Attributes:
        until: eight bytes, a native double: when, by `lease_time` of this host (see
            `jrs.contract.clock`), the leadership is over unless the moment has moved by then.
            Attempts must have ended soon after it.
        held: nobody else leads before the ttl is over, although the leader died, as long as a
            process holds this open.
    """

    until: int
    held: int


class Leadership(abc.ABC):
    """A won campaign.

    Attributes:
        epoch: the integer this leadership was issued; greater than every earlier one.
        fence: goes with every write of this leader.
        lost: set once this leadership is known to be over, for whatever reason.
        lifeline: where the attempts of a leader that hangs, or was cut off, would be out of its
            successor's reach, because they are on another host.
    """

    epoch: int
    fence: Fence
    lost: threading.Event
    lifeline: Lifeline | None = None

    @abc.abstractmethod
    def resign(self) -> None:
        """Hand over at once. Idempotent, and harmless when the leadership was lost already."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.resign()
