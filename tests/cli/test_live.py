"""What ``jrs top`` shows while its server hangs or is away."""

from __future__ import annotations

import io
import threading
from typing import Any

from rich.console import Console
from rich.text import Text

from jrs.cli.live import Pace, Pictures
from jrs.contract.errors import Unavailable

SINCE = "1970-01-01 00:16:40"
AT_ONCE = Pace(silence=0.0, slower=0.0, now=lambda: 1000.0, clock=lambda: 0.0)
NEVER = Pace(silence=60.0, now=lambda: 1000.0, clock=lambda: 0.0)


class Hanging:
    """A server whose answers wait until something is shown instead."""

    def __init__(self, *answers: str | Unavailable) -> None:
        self._answers = list(answers)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def draw(self) -> Any:
        assert self.may_answer.wait(60)
        answer = self._answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return Text(answer)


def shown(server: Hanging, pace: Pace) -> tuple[Pictures, list[list[str]]]:
    screens: list[list[str]] = []

    def show(drawn: Any) -> None:
        console = Console(file=io.StringIO(), width=200)
        console.print(drawn)
        screens.append(console.file.getvalue().splitlines())  # type: ignore[attr-defined] # a StringIO
        server.may_answer.set()

    return Pictures(server.draw, show, pace), screens


def test_a_server_that_hangs_is_told_while_it_does() -> None:
    """One line above the last picture, which is gone with the answer."""
    server = Hanging("one", "two")
    pictures, screens = shown(server, AT_ONCE)
    pictures.first()
    server.may_answer.clear()

    assert pictures.renew()
    assert screens == [[f"no answer since {SINCE} UTC", "one"], ["two"]]


def test_why_it_cannot_be_read_stays() -> None:
    """Until an answer comes, it says more than that there is none."""
    server = Hanging("one", Unavailable("no server listens"), Unavailable("gone"), "two")
    pictures, screens = shown(server, AT_ONCE)
    pictures.first()
    server.may_answer.clear()
    since = f"cannot be read since {SINCE} UTC, and is tried again"

    assert not pictures.renew()
    assert not pictures.renew()
    assert pictures.renew()
    assert screens == [
        [f"no answer since {SINCE} UTC", "one"],
        [f"{since}: no server listens", "one"], [f"{since}: gone", "one"], ["two"],
    ]  # fmt: skip


def test_an_answer_in_time_is_all_that_is_shown() -> None:
    pictures, screens = shown(Hanging("one", "two"), NEVER)
    pictures.first()

    assert pictures.renew()
    assert screens == [["two"]]


def test_a_large_cluster_may_take_longer() -> None:
    """Twice as long as the last picture took, before it counts as no answer."""
    times = iter([0.0, 30.0, 30.0, 60.0])
    pace = Pace(silence=0.0, slower=2.0, now=lambda: 1000.0, clock=lambda: next(times))
    pictures, screens = shown(Hanging("one", "two"), pace)
    pictures.first()

    assert pictures.renew()
    assert screens == [["two"]]
