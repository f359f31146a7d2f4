"""The streaming demo's story: streams of three airports and the weather, and leaders that die.

A seed determines the moments: within or after which batch of which stream a leader is killed or the
job is suspended or rescaled. Nothing waits for the clock, so that a slow machine sees the same
story.
"""

from __future__ import annotations

import random
import secrets
import time
from pathlib import Path

import attrs
from rich.table import Table

from jrs.demo import comparison, data, replay
from jrs.demo.scene import Scene
from jrs.demo.screen import Screen
from jrs.demo.setting import Setting, Stuck, perform
from jrs.demo.streaming import STREAMS
from jrs.demo.watching import JOB, Moment, Watched
from jrs.records.model import JobResult, JobSpec, JobStatus, Json, StopMode, StopState
from jrs.recovery.processes import marks
from jrs.store.stops import JobStops

BATCH = "batch"
"""The job whose tables all streams are compared with, and its only stage."""
_PARTITIONS = 4
_SEEDS = 1_000_000


@attrs.frozen
class _Plan:
    """The moments of all actions; the same for the same seed."""

    kills: tuple[Moment, ...]
    suspend: Moment
    rescale: Moment
    kill_after_it: Moment

    @classmethod
    def of(cls, seed: int) -> _Plan:
        chance = random.Random(seed)
        first, second, suspend, rescale, last = (Moment.drawn(chance) for _ in range(5))
        return cls((first, second), suspend, rescale, last)


def tell(backend: str | None, storage: str | Path | None, *, keep: bool, seed: int | None) -> int:
    """Run the streaming demo; see `jrs.demo.run_streaming`."""
    chosen = secrets.randbelow(_SEEDS) if seed is None else seed

    def play(setting: Setting) -> list[str]:
        return _play(setting, _Plan.of(chosen))

    title = f"jrs demo --streaming --seed {chosen}"
    return perform(play, backend, storage, clusters=("streams",), title=title, keep=keep)


def _play(setting: Setting, plan: _Plan) -> list[str]:
    replayed = replay.export(data.export(setting.folder / "data"), setting.folder / "replay")
    arguments = {"flights": str(replayed.flights), "weather": str(replayed.weather)}
    specs = [
        JobSpec(JOB, "jrs.demo.streaming:delays", arguments),
        JobSpec(BATCH, "jrs.demo.streaming:batch", arguments),
    ]
    with Scene(setting, setting.clusters[0], specs) as scene:
        watched = Watched(scene, replay.WeatherFeed(replayed))
        _start(watched)
        for moment in plan.kills:
            watched.kill(moment)
        _suspend(watched, plan.suspend)
        _rescale(watched, plan.rescale)
        watched.kill(plan.kill_after_it)
        _drain(watched)
        setting.screen.show(None)
        results = _in_one_batch(scene)
        differences = [*_failures(results), *scene.problems()]
        rows = _compare(scene, differences)
        _end(setting.screen, results, watched, rows, differences)
    return differences


# -- the acts -------------------------------------------------------------------------------------


def _start(watched: Watched) -> None:
    scene = watched.scene
    last = ", ".join(f"{airport} until {day:%b %d}" for airport, day in replay.LAST_DAYS.items())
    scene.screen.act(
        "1. Streams, and leaders that die",
        f"The flights that left New York from {replay.FIRST:%b %d, %Y} on, day by day: {last}.\n"
        "Three bounded streams of their delays by the hour; a fourth, unbounded, joins each flight "
        "with the weather,\nwhich keeps arriving. Three masters; the one that leads is killed.",
    )
    for name in ("m1", "m2", "m3"):
        scene.masters.start(name)
    scene.submit(JOB)
    watched.until_it_continues()


def _suspend(watched: Watched, moment: Moment) -> None:
    scene, stops = watched.scene, JobStops(watched.scene.backend)
    scene.screen.act(
        "2. Suspend, and resume",
        "The job ends its processes, and resumes from its newest committed batches.",
    )
    when = watched.until_moment(moment)
    stops.request(JOB, StopMode.SUSPEND)
    scene.screen.line("client", 0, JOB, "suspend", f"when {when}")
    mark = marks.mark_of_job(scene.backend.url, scene.backend.cluster, JOB)

    def is_suspended() -> bool:
        stop = stops.get(JOB)
        return stop is not None and stop.state is StopState.DONE and not marks.marked(mark)

    watched.until(is_suspended, "the job is suspended")
    watched.suspended()
    before = watched.look()
    scene.screen.line("", 0, JOB, "suspended", f"without a process: {watched.board().plain()}")
    if not watched.feed.is_over:
        said = f"the weather of {watched.feed.add():%b %d} arrives, and no process reads it"
        scene.screen.line("", 0, JOB, "suspended", said)
    if watched.look() != before:
        raise Stuck(f"job {JOB} is suspended, but has read more")
    watched.starts_again()
    resumed = time.time()
    stops.resume(JOB)
    scene.screen.line("client", 0, JOB, "resume", "from its newest committed batches")
    watched.until_started(resumed)
    watched.until_it_continues()


def _rescale(watched: Watched, moment: Moment) -> None:
    scene = watched.scene
    scene.screen.act(
        "3. Rescale, and another kill",
        f"The streams resume with their state over {_PARTITIONS} partitions.",
    )
    when = watched.until_moment(moment)
    before = {name: watched.partitions(name) for name in watched.unfinished()}

    def rescaled() -> list[str]:
        return [name for name in before if watched.partitions(name) == _PARTITIONS]

    asked = time.time()
    JobStops(scene.backend).reconfigure(JOB, partitions=_PARTITIONS)
    scene.screen.line("client", 0, JOB, "rescale", f"when {when}")
    watched.until_started(asked)

    watched.until(
        lambda: set(watched.unfinished()) <= set(rescaled()),
        f"the state is spread over {_PARTITIONS} partitions",
    )
    said = ", ".join(f"{name} {before[name]} to {_PARTITIONS}" for name in rescaled())
    scene.screen.line("", 0, JOB, "rescaled", f"partitions of state: {said}")
    watched.until_it_continues()


def _drain(watched: Watched) -> None:
    scene = watched.scene
    scene.screen.act(
        "4. Drain",
        "The airports end by themselves, each on its last day. When all weather has arrived, the "
        "job is drained:\nevery flight that still waits for weather is given, and it finishes.",
    )
    watched.until(
        lambda: watched.feed.is_over and len(watched.unfinished()) == 1,
        "the airports have ended, and all weather has arrived",
    )
    watched.may_end = True
    JobStops(scene.backend).request(JOB, StopMode.DRAIN)
    scene.screen.line("client", 0, JOB, "drain", watched.board().plain())
    watched.until(lambda: scene.is_clean(JOB), "the job has drained and is clean")


def _in_one_batch(scene: Scene) -> dict[str, JobResult]:
    scene.screen.act(
        "5. The same in one batch", "One job of one stage reads the same files; every row counts."
    )
    scene.submit(BATCH)
    scene.until(lambda: scene.is_clean(BATCH), "the batch job is done")
    return scene.ended()


# -- the end --------------------------------------------------------------------------------------


def _failures(results: dict[str, JobResult]) -> list[str]:
    """Return the reasons why jobs did not finish, or the differences of their reports."""
    failed = [
        f"{one.job_id} ended {one.status.name}: {one.failure and one.failure.message}"
        for one in results.values()
        if one.status is not JobStatus.FINISHED
    ]
    ours, batch = results[JOB].payload, results[BATCH].payload
    if not failed and ours != batch:
        return [f"the report is {ours!r:.200}, of the batch {batch!r:.200}"]
    return failed


def _compare(scene: Scene, differences: list[str]) -> int:
    """Compare each stream with the batch's table; add differences to the list, and return the
    number of rows."""
    table = Table("stream", "rows", "of the batch", "missing", "too many")
    for column in table.columns[1:]:
        column.justify = "right"
    rows = 0
    tables = scene.output(BATCH) / BATCH
    for name in STREAMS:
        expected = comparison.read(tables / name)
        found = comparison.read(scene.output(JOB) / name)
        missing, more = (expected - found).total(), (found - expected).total()
        counts = (found.total(), expected.total(), missing, more)
        table.add_row(name, *(f"{count:,}" for count in counts))
        differences += comparison.compare(name, expected, found)
        rows += found.total()
    scene.screen.table("The streams next to the batch, row by row", table)
    return rows


def _end(
    screen: Screen,
    results: dict[str, JobResult],
    watched: Watched,
    rows: int,
    differences: list[str],
) -> None:
    if results[JOB].payload is not None:
        screen.table("Departures by the weather they had", _by_weather(results[JOB].payload))
    screen.jobs(list(results.values()))
    screen.failovers(watched.failovers)
    screen.verdict(
        differences,
        other="the batch job",
        equal=f"all {rows:,} rows of {len(STREAMS)} streams, and the report, are those of the "
        f"batch job; {len(watched.failovers)} leaders were killed, no finished stage ran again, "
        "every decision follows from its recorded facts, nothing is left behind.",
    )


def _by_weather(report: Json) -> Table:
    table = Table("airport", "weather", "flights", "canceled", "late", "mean delay")
    for column in table.columns[2:]:
        column.justify = "right"
    for row in report:
        left = row["flights"] - row["canceled"]
        table.add_row(
            row["origin"],
            row["weather"],
            f"{row['flights']:,}",
            f"{row['canceled'] / row['flights']:.0%}",
            f"{row['late'] / left:.0%}" if left else "-",
            f"{row['delay'] / left:.1f} min" if left else "-",
        )
    return table
