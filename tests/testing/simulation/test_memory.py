"""The digest of what a simulated process remembers."""

from __future__ import annotations

import greenlet
import pytest

from jrs.testing.simulation.memory import Memory, Untold
from jrs.testing.simulation.scheduler import Actor, Process


def waiting(things: list[str], *, in_loop: bool) -> Actor:
    """Return a thread that waits in a loop over some things, or before it."""

    def wait() -> None:
        greenlet.getcurrent().parent.switch()

    def run() -> None:
        if not in_loop:
            wait()
        for _ in iter(things):
            wait()

    thread = greenlet.greenlet(run)
    thread.switch()
    return Actor("a", Process("p"), 0, run, greenlet=thread)


def test_what_names_lead_to_is_told() -> None:
    one, other, again = (
        Memory([waiting([*text], in_loop=False)], []).digest for text in ("a", "aaa", "a")
    )

    assert one == again
    assert one != other


def test_the_iterator_of_a_loop_cannot_be_told() -> None:
    """No name leads to it: threads with different things left had the same digest."""
    with pytest.raises(Untold, match="iterator of a loop"):
        Memory([waiting([*"aaa"], in_loop=True)], [])
