"""What happens by chance in a simulated run: here at random; an exploration goes through all of it.

An answer of a commit may be lost: the commit has happened, it has not, or it is late: it happens
some time, but not behind the next read of its handle that returns. So the contract of every backend
says. The same may become of what a process had sent before it died.
"""

from __future__ import annotations

from random import Random

from jrs.testing.simulation.scheduler import Request

FATES = ("happens", "is lost", "is late")
"""What may become of a commit whose answer is lost."""
_LOSS = 0.03
"""How likely an answer is lost, while answers may be lost."""


class Chances:
    """Decides at random, but for the answers that are lost for certain.

    Args:
        unknowns: how many commits may lose their answers.
    """

    def __init__(self, rng: Random, unknowns: int) -> None:
        self._rng = rng
        self._unknowns = unknowns
        self.lost_answers: dict[int, str] = {}
        """The commits, by number, whose answers are lost, and what becomes of them."""
        self.commits = 0
        """How many were asked for."""

    def fate_of_answer(self) -> str | None:
        """Return what becomes of a commit whose answer is lost; None: it is answered."""
        self.commits += 1
        if self.commits in self.lost_answers:
            return self.lost_answers[self.commits]
        if self._unknowns and self._rng.random() < _LOSS:
            self._unknowns -= 1
            return self._rng.choice(FATES)
        return None

    def fate_of_last(self, request: Request) -> str:
        """Return what becomes of a request that a process had sent when it was killed."""
        return self._rng.choice(FATES)

    def has_arrived(self) -> bool:
        """Return whether a late commit has happened by the next read of its handle."""
        return self._rng.random() < 0.5

    def turns(self, most: int) -> int:
        """Return how often others run before something happens that takes a while."""
        return self._rng.randrange(1, most)
