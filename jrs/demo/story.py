"""The demo's story: the same jobs without interruption, then with two killed leaders, then
compared.

Every kill waits for a condition and never for the clock. The first waits for files that a stage has
begun to write. The second waits for the dirty marker of a result; a resource is not cleaned up
before that leader is dead.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import attrs

from jrs.contract.operations import Create
from jrs.demo import data
from jrs.demo.hold import GATE
from jrs.demo.scene import Scene
from jrs.demo.screen import Screen
from jrs.demo.setting import Setting, perform
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobResult, JobSpec

JOBS = {
    "flights": "jrs.demo.pipeline:flights",
    "airlines": "jrs.demo.pipeline:airlines",
    "weather": "jrs.demo.pipeline:weather_summary",
}
TEAMS = {"flights": "routes", "airlines": "routes", "weather": "meteorology"}
"""Whose the jobs are, by their tags: what a report counts costs by."""


def tell(backend: str | None, storage: str | Path | None, *, keep: bool) -> int:
    """Run the demo; see `jrs.demo.run`."""
    return perform(_play, backend, storage, clusters=("calm", "demo"), title="jrs demo", keep=keep)


def _play(setting: Setting) -> list[str]:
    source = data.export(setting.folder / "data")
    calm, demo = setting.clusters
    with _Held(setting, calm, source) as scene:
        expected = _undisturbed(scene)
    with _Held(setting, demo, source) as scene:
        found, times = _disturbed(scene)
    differences = _compare(expected, found)
    _end(setting.screen, found, times, differences)
    return differences


@attrs.frozen
class _Outcome:
    """The outcome of the jobs of one cluster, for the comparison."""

    results: dict[str, JobResult]
    output: dict[str, str]
    """Each published file of the jobs, without Spark's random part in its name, and its digest."""
    problems: tuple[str, ...] = ()
    """Problems of this outcome alone."""


class _Held(Scene):
    """A cluster that does not clean up its job `flights` before its gate is open."""

    def __init__(self, setting: Setting, cluster: str, source: Path) -> None:
        self.gate = setting.folder / f"{cluster}.gate"
        super().__init__(
            setting,
            cluster,
            [_spec(job_id, source) for job_id in JOBS],
            resources=["jrs.demo.hold:hold"],
            environment={GATE: str(self.gate)},
        )

    def __enter__(self) -> _Held:
        return self

    def outcome(self) -> _Outcome:
        """Return the outcome of the jobs, with its problems."""
        return _Outcome(self.ended(), self._output(), self.problems())

    def _output(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for job_id in JOBS:
            out = self.output(job_id)
            for path in sorted(out.rglob("[!._]*")):
                if path.is_file():
                    # Spark: part-00000-<random>-c000.csv
                    name = f"{job_id}/{path.parent.relative_to(out)}/{path.name[:10]}"
                    digest = hashlib.sha256(path.read_bytes()).hexdigest()
                    found[name] = f"{found[name]} {digest}" if name in found else digest
        return found


def _spec(job_id: str, source: Path) -> JobSpec:
    tag = f"team={TEAMS[job_id]}"
    return JobSpec(job_id, JOBS[job_id], {"data": str(source)}, tags=(tag,))


def _undisturbed(scene: _Held) -> _Outcome:
    scene.screen.act(
        "1. Undisturbed",
        "Three jobs on one master; what they return is what must come out in the end.",
    )
    scene.gate.touch()
    scene.masters.start("calm")
    scene.submit(*JOBS)
    scene.until(lambda: all(map(scene.is_clean, JOBS)), "all three jobs are done")
    return scene.outcome()


def _disturbed(scene: _Held) -> tuple[_Outcome, list[tuple[str, dict[str, float]]]]:
    screen = scene.screen
    screen.act(
        "2. The same jobs, and two kills",
        "Three masters; one leads. The first leader is killed while stage `join` writes, the "
        "second when the result\nis durable (dirty) but nothing of the job is cleaned up.",
    )
    for name in ("m1", "m2", "m3"):
        scene.masters.start(name)
    scene.submit("airlines", "flights")
    scene.until(lambda: scene.is_clean("airlines"), "airlines is done")
    scene.until(lambda: scene.writes("flights", "join"), "stage join of flights writes")
    first, killed = scene.kill_leader("stage join of flights is half written")
    screen.line("client", 0, "airlines", "restore", "an old backup brings its spec back")
    scene.backend.commit(Create(keys.JOBS + "airlines", encode(scene.specs["airlines"])))
    scene.submit("weather")
    times = [(f"{first.name} in stage join", _since(killed, scene, 2, "attempt", "flights"))]

    scene.until(lambda: scene.is_clean("weather"), "weather is done")
    scene.until(lambda: scene.is_dirty("flights"), "the result of flights is dirty")
    second, killed = scene.kill_leader("the result of flights is dirty, and not clean")
    scene.gate.touch()
    times += [
        (f"{second.name} between dirty and clean", _since(killed, scene, 3, "clean", "flights"))
    ]
    scene.until(lambda: all(map(scene.is_clean, JOBS)), "all three jobs are done")
    return scene.outcome(), times


def _since(killed: float, scene: _Held, epoch: int, last: str, job_id: str) -> dict[str, float]:
    times = {kind: scene.said(kind, epoch).at - killed for kind in ("elected", "leading")}
    names = {"attempt": "attempt started", "clean": "cleaned up"}
    return {**times, names[last]: scene.said(last, epoch, job_id).at - killed}


def _compare(expected: _Outcome, found: _Outcome) -> list[str]:
    """Return a line for each difference of the two outcomes."""
    differences = [*expected.problems, *found.problems]
    for job_id, result in expected.results.items():
        other = found.results[job_id]
        if (other.status, other.payload) != (result.status, result.payload):
            differences.append(
                f"{job_id} gave {other.status.name} {other.payload!r:.200}, undisturbed "
                f"{result.status.name} {result.payload!r:.200}"
            )
        if result.failure is not None:
            differences.append(f"{job_id} failed: {result.failure.message}")
    for name in sorted({*expected.output, *found.output}):
        if expected.output.get(name) != found.output.get(name):
            differences.append(f"output {name} differs, is missing or is there twice")
    return differences


def _end(
    screen: Screen,
    found: _Outcome,
    times: list[tuple[str, dict[str, float]]],
    differences: list[str],
) -> None:
    flights = found.results["flights"]
    if flights.payload is not None:
        screen.report(flights.payload["worst"])
    screen.jobs(list(found.results.values()))
    screen.failovers(times)
    screen.verdict(
        differences,
        other="the undisturbed run",
        equal=f"all {len(found.results)} results and {len(found.output)} output files are those of "
        "the undisturbed run; no finished stage ran again, every decision follows from its "
        "recorded facts, nothing is left behind.",
    )
