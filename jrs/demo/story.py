"""The demo's story: the same jobs undisturbed, then with two leaders killed; then the comparison.

Every kill waits for a condition and never for the clock: the first for files that a stage has begun
to write, the second for the dirty marker of a result, with a resource that will not be cleaned up
before the leader is dead.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import attrs

from jrs import keys
from jrs.backend import Backend, Create, Delete, open_backend, redacted
from jrs.codec import encode
from jrs.demo import data
from jrs.demo.hold import GATE
from jrs.demo.screen import Screen
from jrs.errors import InvalidInput, NoSuchJob
from jrs.jobs import JobCatalog
from jrs.model import JobResult, JobSpec, ResultState, StageRecord, StageSummary
from jrs.recovery import processes
from jrs.recovery.spark import require_java
from jrs.recovery.storage import JobStorage
from jrs.store import JobResultStore
from jrs.testing.masters import MasterEvent, MasterProcess, Masters
from jrs.testing.servers import ServerMissing, find_etcd, find_zookeeper

JOBS = {
    "flights": "jrs.demo.pipeline:flights",
    "airlines": "jrs.demo.pipeline:airlines",
    "weather": "jrs.demo.pipeline:weather_summary",
}
_TTL = 5.0
_PATIENCE = 300.0
"""Seconds after which something that was waited for is taken to be broken."""


_SERVERS = {"etcd": find_etcd, "zookeeper": find_zookeeper}
"""What the demo can start by itself."""


def tell(backend: str | None, *, keep: bool) -> int:
    """Run the demo; see `jrs.demo.run`."""
    _require_everything()
    own = secrets.token_hex(3)
    calm, demo = f"calm-{own}", f"demo-{own}"
    given = backend if backend and backend not in _SERVERS else None
    if given:
        _require_processes(given, calm)
    folder = Path(tempfile.mkdtemp(prefix="jrs-demo-"))
    screen = Screen()
    try:
        with _terminable(), _reachable(backend, folder) as url, screen:
            screen.say(f"jrs demo: backend {redacted(url)}, files in {folder}")
            source = data.export(folder / "data")
            with _Scene(url, calm, folder, source, screen) as scene:
                expected = _undisturbed(scene)
            with _Scene(url, demo, folder, source, screen) as scene:
                found, times = _disturbed(scene)
        differences = _compare(expected, found)
        _end(screen, found, times, differences)
        keep = keep or bool(differences)
        return 1 if differences else 0
    except TimeoutError as error:
        keep = True
        screen.say(f"\nThe demo is stuck: {error}", "bold red")
        return 1
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
            if given:
                _forget(given, calm, demo)
        elif backend in _SERVERS:
            screen.say(f"\nThe files are kept in {folder}; the demo's own server is gone")
        else:
            screen.say(f"\nEverything is kept: clusters {calm} and {demo}, files in {folder}")


@contextmanager
def _reachable(backend: str | None, folder: Path) -> Iterator[str]:
    """Yield the URL of the backend: the one given, a folder, or a server of the demo's own."""
    if backend not in _SERVERS:
        yield backend or (folder / "store").as_uri()
        return
    try:
        server = _SERVERS[backend]()
    except ServerMissing as error:
        raise InvalidInput(f"the demo can start no {backend} here: {error}") from None
    with server:
        yield server.url()


def _require_everything() -> None:
    if find_spec("pyspark") is None:
        raise InvalidInput("the demo needs Spark: pip install 'jrs[demo]'")
    require_java()
    data.source()


def _require_processes(url: str, cluster: str) -> None:
    with open_backend(url, cluster=cluster) as backend:
        if not backend.capabilities.multi_process:
            raise InvalidInput(
                f"{redacted(url)} can not be opened by several processes, and the demo's masters "
                "are processes; leave out --backend for a folder of the demo's own"
            )


def _forget(url: str, *clusters: str) -> None:
    """Remove what the demo stored in a backend that is not its own."""
    for cluster in clusters:
        with open_backend(url, cluster=cluster) as backend:
            for record in list(backend.scan("")):
                backend.commit(Delete(record.key))


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does: its masters are processes and must not stay."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@attrs.frozen
class _Outcome:
    """What the jobs of one cluster have come to, for the comparison."""

    results: dict[str, JobResult]
    output: dict[str, str]
    """Each published file that the jobs wrote, without Spark's random part, and its digest."""
    problems: tuple[str, ...] = ()
    """What is wrong with it by itself."""


class _Scene:
    """One cluster: its masters, its jobs, and what is seen of them."""

    def __init__(self, url: str, cluster: str, folder: Path, source: Path, screen: Screen) -> None:
        self.screen = screen
        self.gate = folder / f"{cluster}.gate"
        self._source = source
        self._seen: dict[tuple[str, str], int] = {}
        """The attempt by which each job's stage was first seen finished."""
        self.masters = Masters(
            url,
            cluster=cluster,
            storage=folder / "files",
            ttl=_TTL,
            resources=["jrs.demo.hold:hold"],
            environment={GATE: str(self.gate)},
            on_event=self._tell,
        )
        self.backend: Backend = self.masters.backend
        self.catalog = JobCatalog(self.backend)
        self.results = JobResultStore(self.backend)
        self.storage = JobStorage(folder / "files", cluster)

    def __enter__(self) -> _Scene:
        return self

    def __exit__(self, *exc: object) -> None:
        self.masters.close()

    def spec(self, job_id: str) -> JobSpec:
        return JobSpec(job_id, JOBS[job_id], {"data": str(self._source)})

    def submit(self, *job_ids: str) -> None:
        for job_id in job_ids:
            self.catalog.submit(self.spec(job_id))
            self.screen.line("client", 0, job_id, "submit", JOBS[job_id])

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until `condition` holds, and show stages as they finish meanwhile."""
        self.screen.doing(f"until {what} …")

        def look() -> bool:
            self.show_stages()
            return condition()

        self.masters.until(look, what, _PATIENCE)

    def show_stages(self) -> None:
        for job_id in JOBS:
            for stage in self.stages(job_id):
                if (job_id, stage.name) not in self._seen:
                    self._seen[job_id, stage.name] = stage.attempt
                    said = f"{stage.name} finished in {stage.seconds:.1f} s"
                    master = self._master_of(stage.epoch)
                    self.screen.stage(master, stage.epoch, job_id, said)

    def stages(self, job_id: str) -> tuple[StageRecord | StageSummary, ...]:
        """Return the job's finished stages, from its result where their records are gone."""
        try:
            view = self.catalog.view(job_id)
        except NoSuchJob:
            return ()
        done = view.entry.result if view.entry else None
        return done.stages if done else view.stages

    def is_clean(self, job_id: str) -> bool:
        entry = self.results.get(job_id)
        return entry is not None and entry.state is ResultState.CLEAN

    def is_dirty(self, job_id: str) -> bool:
        return self.results.has_dirty(job_id)

    def writes(self, job_id: str, stage: str) -> bool:
        """Return whether files of the stage are in staging: it is in its middle."""
        staged = self.storage.folder(job_id).glob(f"e*/{stage}.*/**/*")
        return any(path.is_file() for path in staged)

    def said(self, kind: str, epoch: int, job_id: str = "") -> MasterEvent:
        """Return the event, waiting for it."""

        def wanted(event: MasterEvent) -> bool:
            return (event.kind, event.epoch, event.job_id) == (kind, epoch, job_id)

        what = f"epoch {epoch} says {kind!r}" + (f" of {job_id}" if job_id else "")
        self.until(lambda: any(map(wanted, self.masters.events)), what)
        return next(filter(wanted, self.masters.events))

    def kill_leader(self, when: str) -> tuple[MasterProcess, float]:
        leader = self.masters.leader()
        at = leader.kill()
        self.screen.kill(leader.name, when)
        return leader, at

    def outcome(self) -> _Outcome:
        """Return what became of the jobs, and what is wrong with it."""
        results, problems = {}, []
        for job_id in JOBS:
            results[job_id] = self.results.wait(job_id, 0)
            for stage in results[job_id].stages:
                seen = self._seen.get((job_id, stage.name))
                if seen is not None and seen != stage.attempt:
                    problems.append(f"stage {stage.name} of {job_id} was finished and run again")
            problems += [f"left behind: {path}" for path in self.storage.left_in_staging(job_id)]
        mark = processes.mark_of_cluster(self.backend.url, self.backend.cluster)
        problems += [f"left behind: process {pid}" for pid in processes.marked(mark)]
        return _Outcome(results, self._output(), tuple(problems))

    def _output(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for job_id in JOBS:
            out = self.storage.folder(job_id) / "out"
            for path in sorted(out.rglob("[!._]*")):
                if path.is_file():
                    # Spark: part-00000-<random>-c000.csv
                    name = f"{job_id}/{path.parent.relative_to(out)}/{path.name[:10]}"
                    digest = hashlib.sha256(path.read_bytes()).hexdigest()
                    found[name] = f"{found[name]} {digest}" if name in found else digest
        return found

    def _tell(self, event: MasterEvent) -> None:
        self.screen.event(event)
        if event.kind == "attempt" and event.epoch > 1:
            for stage in self.stages(event.job_id):
                said = f"{stage.name} was finished in attempt {stage.attempt}: skipped"
                self.screen.stage(event.master, event.epoch, event.job_id, said)

    def _master_of(self, epoch: int) -> str:
        for event in self.masters.events:
            if event.epoch == epoch:
                return event.master
        return "?"


def _undisturbed(scene: _Scene) -> _Outcome:
    scene.screen.act(
        "1. Undisturbed",
        "Three jobs on one master; what they return is what must come out in the end.",
    )
    scene.gate.touch()
    scene.masters.start("calm")
    scene.submit(*JOBS)
    scene.until(lambda: all(map(scene.is_clean, JOBS)), "all three jobs are done")
    return scene.outcome()


def _disturbed(scene: _Scene) -> tuple[_Outcome, list[tuple[str, dict[str, float]]]]:
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
    scene.backend.commit(Create(keys.JOBS + "airlines", encode(scene.spec("airlines"))))
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


def _since(killed: float, scene: _Scene, epoch: int, last: str, job_id: str) -> dict[str, float]:
    times = {kind: scene.said(kind, epoch).at - killed for kind in ("elected", "leading")}
    names = {"attempt": "attempt started", "clean": "cleaned up"}
    return {**times, names[last]: scene.said(last, epoch, job_id).at - killed}


def _compare(expected: _Outcome, found: _Outcome) -> list[str]:
    """Return how the two differ, one line each."""
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
    if differences:
        screen.say("\nDIFFERENT from the undisturbed run:", "bold red")
        for difference in differences:
            screen.say(f"  {difference}")
    else:
        screen.say(
            f"\nEQUAL: all {len(found.results)} results and {len(found.output)} output files are "
            "those of the undisturbed run; no finished stage ran again, nothing is left behind.",
            "bold green",
        )
