"""Striking: when each nemesis strikes, and the thread that lets it strike and heal."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import counted
from jrs.testing.chaos.faults import Arena, Fault, Nemesis
from jrs.testing.chaos.recorded import Kind, Verb
from jrs.testing.chaos.recorder import Recording
from jrs.testing.servers import ServerError

_TURN = 0.2
"""Seconds between two looks at what else is due."""


@attrs.frozen(order=True)
class Strike:
    """A strike of a schedule.

    Attributes:
        at: seconds from the beginning of the faults.
        fault: the number of its fault in the nemesis.
        seed: determines whom it hits, among those who are there then.
    """

    at: float
    fault: int
    seed: str


def schedule(nemesis: Nemesis, seconds: float, seed: int) -> list[Strike]:
    """Return the strikes of a run: the same ones for the same nemesis and seed."""
    found: list[Strike] = []
    for number, fault in enumerate(nemesis.faults):
        rng = Random(f"{seed}/{number}")
        end = seconds if fault.until is None else min(seconds, fault.until)
        at = rng.uniform(0.2, 1.0) * fault.every
        while at < end:
            found.append(Strike(at, number, f"{seed}/{number}/{len(found)}"))
            at += rng.uniform(0.5, 1.5) * fault.every
    return sorted(found)


@attrs.define
class Tally:
    """What became of the strikes of one fault of a run.

    Attributes:
        hits: how many of them hit anyone.
        why: why it cannot strike in this run, or the newest strike that failed did.
    """

    strikes: int = 0
    hits: int = 0
    why: str = ""


def never_hit(notes: Mapping[str, Any]) -> list[str]:
    """Return a line for each fault of a run that has hit nobody, by the run's notes."""
    lines = []
    for name, tally in notes.get("faults", {}).items():
        if tally["hits"] == 0:
            strikes = tally["strikes"]
            said = f"0 of {counted(strikes, 'strike', 'strikes')} hit anyone"
            why = tally["why"] or ("" if strikes else "the faults were over before its first one")
            lines.append(f"{name}: {said}{f' ({why})' if why else ''}")
    return lines


def _numbered(names: Sequence[str]) -> list[str]:
    """Return names of which no two are equal."""
    seen = Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        found.append(f"{name} ({seen[name]})" if names.count(name) > 1 else name)
    return found


class Striker:
    """Strikes by a schedule in a thread of its own, until it is told to stop; then heals all.

    Args:
        each_turn: called a few times a second, between the strikes.
        seed: determines whom the strikes outside of the schedule hit.

    Attributes:
        names: of the faults of the nemesis; those of one name are numbered.
        tallies: by these names, and by that of each fault that struck at once.
    """

    def __init__(
        self,
        arena: Arena,
        nemesis: Nemesis,
        strikes: list[Strike],
        recording: Recording,
        each_turn: Callable[[], None],
        seed: int,
    ) -> None:
        self._arena = arena
        self._nemesis = nemesis
        self.names = _numbered([fault.name for fault in nemesis.faults])
        self.tallies = {name: Tally() for name in self.names}
        self._recording = recording
        self._each_turn = each_turn
        self._rng = Random(f"{seed}/now")
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        for strike in strikes:
            self._at(strike.at, lambda strike=strike: self._strike(strike))  # type: ignore[misc]
        self._hurt: dict[int, tuple[str, Iterator[str]]] = {}
        self._quiet_since = float("-inf")
        self._over = False
        self._stop = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="jrs-chaos-faults", daemon=True)

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    @property
    def quiet_since(self) -> float:
        """The moment of the monotonic clock since which no fault hurts anything; infinity: one
        does."""
        with self._lock:
            return float("inf") if self._hurt else self._quiet_since

    def start(self) -> None:
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Strike no more, heal everything, and return then. Idempotent."""
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        with self._lock:
            heapq.heappush(self._due, (seconds, next(self._order), action))

    def _take(self) -> Callable[[], None] | None:
        """Return an action that is due."""
        with self._lock:
            if self._due and self._due[0][0] <= time.monotonic() - self._began:
                return heapq.heappop(self._due)[2]
        return None

    def _until_next(self) -> float:
        with self._lock:
            soonest = self._due[0][0] if self._due else float("inf")
        return max(0.0, min(_TURN, soonest - (time.monotonic() - self._began)))

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if (action := self._take()) is not None:
                    action()
                self._each_turn()  # Also if strikes take longer than the time between them.
                self._stop.wait(self._until_next())
        except BaseException as error:
            self.failure = error
        finally:
            with self._lock:
                self._over = True
                left = list(self._hurt)
            for number in left:
                self._heal(number)

    def _strike(self, strike: Strike) -> None:
        fault = self._nemesis.faults[strike.fault]
        self._hurt_by(fault, self.names[strike.fault], Random(strike.seed))

    def strike_now(self, fault: Fault) -> str | None:
        """Let a fault strike now, from any thread; return whom it hit.

        Raises:
            InvalidInput: the time of the faults is over.
        """
        return self._hurt_by(fault, f"{fault.name}, at once", self._rng)

    def _hurt_by(self, fault: Fault, name: str, rng: Random) -> str | None:
        harm = fault.strike(self._arena, rng)
        # A strike that a test asks for is no hit of the plan's, nor hidden by one.
        tally = self.tallies.setdefault(name, Tally())
        tally.strikes += 1
        try:
            whom = next(harm, None)
        except (OSError, ServerError) as error:
            tally.why = str(error)  # It has ended meanwhile, or it may not be hurt.
            return None
        if whom is not None:
            tally.hits += 1
            number = self._recording.begin(Verb.STRIKE, name, whom)
            with self._lock:
                is_over = self._over
                self._hurt[number] = name, harm
            if is_over:
                self._heal(number)
                raise InvalidInput(f"{fault.name}: the time of the faults is over")
            self._at(time.monotonic() - self._began + fault.lasting, lambda: self._heal(number))
        return whom

    def _heal(self, number: int) -> None:
        with self._lock:
            name, harm = self._hurt.get(number, ("", None))
        if harm is None:
            return
        try:
            next(harm, None)
        except (OSError, ServerError):
            pass  # It has ended meanwhile.
        except BaseException as error:  # The others are healed all the same.
            self.failure = self.failure or error
        self._recording.write(number, Kind.INFO, Verb.HEAL, name)
        with self._lock:
            self._hurt.pop(number, None)
            self._quiet_since = time.monotonic()
