"""Watching the streaming job: shows its progress, feeds it, and waits for the moments of kills.

All of it happens at regular looks while the demo waits: weather is added, the board is redrawn, and
the random moments are recognized.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

import attrs

from jrs.demo.board import Board, Line, step
from jrs.demo.progress import Progress, ProgressOf
from jrs.demo.replay import FIRST, WeatherFeed
from jrs.demo.scene import Scene
from jrs.demo.setting import Stuck
from jrs.demo.streaming import AIRPORTS, STREAMS, WEATHER, WEATHER_SOURCE
from jrs.testing.masters import MasterEvent

JOB = "delays"
_LOOK = 0.2
"""Seconds between two looks at the streams: short enough to see each batch, and long enough to
spare the disk."""
_LINE_EVERY = 16
"""Batches between two plain lines about the streams, if no board is drawn."""


@attrs.frozen
class Moment:
    """A moment in the life of the job: a number of batches after the wait for it begins."""

    streams: tuple[str, ...]
    """The streams whose batches may be counted: the first that has not finished counts."""
    batches: int
    within: bool
    """Whether the moment is within the next batch instead of after a batch."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Moment:
        return cls(
            tuple(chance.sample(STREAMS, len(STREAMS))), chance.randint(1, 3), chance.random() < 0.5
        )

    def has_come(self, began: Progress, now: Progress) -> bool:
        """Return whether the moment has come, for a wait since `began`."""
        wanted = began.committed + self.batches
        return now.planned > wanted if self.within else now.committed >= wanted


class Watched:
    """The job `delays` of a scene."""

    def __init__(self, scene: Scene, feed: WeatherFeed) -> None:
        self.scene = scene
        self.feed = feed
        self.may_end = False
        """Whether the job has been asked to end."""
        self.failovers: list[tuple[str, dict[str, float]]] = []
        """Each kill: the master, the time, and the seconds until each step of the recovery."""
        self._progress_of = ProgressOf(scene.storage, JOB, STREAMS)
        self._progress: Mapping[str, Progress] = {}
        self._finished: Mapping[str, object] = {}
        self._state = "starting"
        self._before = 0
        """The number of committed batches when the job was started or restarted."""
        self._looked = self._told = 0.0
        scene.looking = self._look
        self.look()

    # -- what is waited for -----------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until `condition` holds.

        Raises:
            TimeoutError: it does not; see `Scene.until`.
            Stuck: the job has ended without being asked to.
        """
        self.scene.until(condition, what)

    def until_moment(self, moment: Moment) -> str:
        """Wait for a moment; return its description."""
        name = next(name for name in moment.streams if name in self.unfinished())
        began = self._progress[name]

        def has_come() -> bool:
            return (
                moment.has_come(began, self._progress[name])
                or name not in self.unfinished()
                or (name == WEATHER and self._has_read_all())
            )

        self.until(has_come, "a random moment")
        now = self._progress[name]
        if name not in self.unfinished():
            return f"{name} has finished"
        if now.planned > now.committed:
            return f"{name} is in batch {now.planned - 1}"
        return f"{name} has committed batch {now.committed - 1}"

    def until_started(self, since: float) -> float:
        """Wait until an attempt has started after a moment; return the time."""
        started = self._event("attempt", since, JOB)
        # The previous attempt may have committed until its last moment.
        self.starts_again()
        return started

    def until_it_continues(self) -> None:
        """Wait until a batch is committed after the start."""
        self.until(lambda: self._state == "running", "it runs")

    def kill(self, moment: Moment) -> None:
        """Kill the leader at a moment, start another master in its place, and wait until the job
        continues."""
        when = self.until_moment(moment)
        killed, at = self.scene.kill_leader(when)
        self.starts_again()
        self.scene.masters.start(f"m{len(self.scene.masters.all) + 1}")
        times = {
            "elected": self._event("elected", at) - at,
            "leading": self._event("leading", at) - at,
            "attempt started": self.until_started(at) - at,
        }
        self.until_it_continues()
        times["next batch committed"] = time.time() - at
        self.failovers.append((f"{killed.name}: {when}", times))

    # -- what is seen -----------------------------------------------------------------------

    def look(self) -> Mapping[str, Progress]:
        """Return the progress of each stream; also feed the weather and draw the board."""
        self._looked = time.monotonic()
        self._progress = self._progress_of.look()
        self._finished = {stage.name: stage for stage in self.scene.stages(JOB)}
        batches = self._batches()
        if self._state != "suspended" and batches > self._before:
            self._state = "running"
        self._feed()
        self.scene.screen.show(self.board())
        if not self.scene.screen.is_live and batches >= self._told + _LINE_EVERY:
            self._told = batches
            self.scene.screen.line("", 0, JOB, "streams", self.board().plain())
        return self._progress

    def board(self) -> Board:
        """Return the content of the board."""
        leads = [event for event in self.scene.masters.events if event.kind == "leading"]
        newest = leads[-1] if leads else None
        alive = newest is not None and any(
            master.name == newest.master and master.alive for master in self.scene.masters.all
        )
        leader = f"{newest.master} leads, epoch {newest.epoch}" if newest and alive else "no leader"
        return Board(
            leader,
            f"leaders killed: {len(self.failovers)}",
            tuple(
                Line(
                    name,
                    step(
                        name,
                        progress,
                        bounded=name in AIRPORTS,
                        finished=self._finished,
                        job=self._state,
                    ),
                    progress,
                    self._newest(name, progress),
                )
                for name, progress in self._progress.items()
            ),
        )

    def unfinished(self) -> list[str]:
        """Return the streams that have not finished."""
        return [name for name in STREAMS if name not in self._finished]

    def partitions(self, name: str) -> int | None:
        """Return the number of partitions of a stream's state, if it can be read now."""
        return self._progress_of.partitions(name)

    def suspended(self) -> None:
        """Record that the job is suspended."""
        self._state = "suspended"
        self.look()

    def starts_again(self) -> None:
        """Record that a new attempt begins: from now on only its batches count."""
        self._progress = self._progress_of.look()
        self._state, self._before = "recovering", self._batches()

    # -- inside -----------------------------------------------------------------------------

    def _look(self) -> None:
        if time.monotonic() < self._looked + _LOOK:
            return
        if not self.may_end and self.scene.results.has_entry(JOB):
            result = self.scene.results.wait(JOB, 0)
            why = result.failure.message if result.failure else "its cancellation was not requested"
            raise Stuck(f"job {JOB} has ended {result.status.name}: {why}")
        self.look()

    def _feed(self) -> None:
        """Add a day of weather once the flights of that day are read."""
        if self._state == "suspended" or self.feed.is_over:
            return
        read = [self._progress[name].read(0) for name in AIRPORTS if name not in self._finished]
        if self.feed.fed <= min([*read, self._read_weather()], default=0) + 1:
            self.feed.add()

    def _has_read_all(self) -> bool:
        return self.feed.is_over and self._read_weather() == self.feed.fed

    def _read_weather(self) -> int:
        return self._progress[WEATHER].read(WEATHER_SOURCE)

    def _batches(self) -> int:
        return sum(progress.committed for progress in self._progress.values())

    def _newest(self, name: str, progress: Progress) -> str:
        days = progress.read(WEATHER_SOURCE if name == WEATHER else 0)
        return f"{FIRST + timedelta(days=days - 1):%b %d}" if days else "-"

    def _event(self, kind: str, after: float, job_id: str = "") -> float:
        """Wait for the first event of a kind after a moment; return its time."""

        def wanted(event: MasterEvent) -> bool:
            return (event.kind, event.job_id) == (kind, job_id) and event.at >= after

        events = self.scene.masters.events
        self.until(lambda: any(map(wanted, events)), f"a master says {kind!r}")
        return next(filter(wanted, events)).at
