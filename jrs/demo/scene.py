"""A scene: one cluster, its masters and jobs, and the events that are seen while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import NoSuchJob
from jrs.contract.storage_place import place_of
from jrs.demo.screen import Screen
from jrs.demo.setting import Setting
from jrs.records.model import JobResult, JobSpec, ResultState, StageRecord, StageSummary
from jrs.records.objects import BatchManifest, OutputManifest
from jrs.recovery.cleanup.job_objects import index_in
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.processes import marks
from jrs.recovery.storage.batches import files_of, in_batch
from jrs.recovery.storage.packed_copies import fetch, read_record
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import MasterEvent, MasterProcess, Masters

_TTL = 5.0
_PATIENCE = 300.0
_LOOK = 0.1
"""Seconds between two looks at the jobs, each of which asks the backend."""
"""Seconds to wait for a condition before the demo counts as broken."""


class Scene:
    """A context manager: leaving it ends the masters and everything that they have started.

    Args:
        specs: the jobs of the scene, by name.
        looking: called at each look while the scene waits for something.
    """

    def __init__(
        self,
        setting: Setting,
        cluster: str,
        specs: Sequence[JobSpec],
        *,
        resources: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        looking: Callable[[], None] = lambda: None,
    ) -> None:
        self.screen: Screen = setting.screen
        self.specs = {spec.job_id: spec for spec in specs}
        self.looking = looking
        self._finished: set[tuple[str, str]] = set()
        """The stages that have finished, by job and name."""
        self._again: set[tuple[str, str]] = set()
        """Those of them that began again."""
        self.masters = Masters(
            setting.url,
            cluster=cluster,
            storage=setting.storage,
            ttl=_TTL,
            resources=resources,
            environment=environment,
            on_event=self._tell,
        )
        self.backend: Backend = self.masters.backend
        self.catalog = JobCatalog(self.backend)
        self.results = JobResultStore(self.backend)
        self.storage = JobStorage(place_of(setting.storage), cluster)
        self._copies = setting.folder / "copies" / cluster

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *exc: object) -> None:
        self.masters.close()

    def submit(self, *job_ids: str) -> None:
        for job_id in job_ids:
            self.catalog.submit(self.specs[job_id])
            self.screen.line("client", 0, job_id, "submit", self.specs[job_id].entry_point)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until `condition` holds."""
        self.screen.doing(f"until {what} …")

        def look() -> bool:
            self.looking()
            return condition()

        self.masters.until(look, what, _PATIENCE, poll=_LOOK)

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
        """Return whether the stage has files in staging, so that it is half done."""
        staged = self.storage.folder(job_id).glob(f"e*/{stage}.*/**/*")
        return any(path.is_file() for path in staged)

    def output(self, job_id: str) -> Path:
        """Return the folder with the output of a job that has ended; of objects, with copies."""
        objects, folder = self.storage.objects, self._copies / job_id
        if objects is None:
            return self.storage.folder(job_id) / "out"
        index = None if folder.exists() else index_in(objects, job_id)
        if index is not None:
            for stage, named in index.stages.items():
                fetch(objects, read_record(objects, OutputManifest, named).files, folder / stage)
            for stage, named in index.streams.items():
                newest = read_record(objects, BatchManifest, named)
                rows = [in_batch(batch, one) for batch, one in files_of(objects, newest)]
                fetch(objects, rows, folder / stage)
        return folder

    def said(self, kind: str, epoch: int, job_id: str = "") -> MasterEvent:
        """Wait for the event and return it."""

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

    def ended(self) -> dict[str, JobResult]:
        """Return the results of the jobs."""
        return {job_id: self.results.wait(job_id, 0) for job_id in self.specs}

    def problems(self) -> tuple[str, ...]:
        """Return which finished stages ran again, what is wrong with the histories, and what the
        ended jobs have left behind."""
        found = [
            f"stage {stage} of {job_id} was finished and run again"
            for job_id, stage in sorted(self._again)
        ]
        found += self.masters.wrong_histories()
        for job_id in self.ended():
            found += [f"left behind: {path}" for path in self.storage.left_in_staging(job_id)]
        mark = marks.mark_of_cluster(self.backend.url, self.backend.cluster)
        found += [f"left behind: process {pid}" for pid in marks.marked(mark)]
        return tuple(found)

    def _tell(self, event: MasterEvent) -> None:
        self.screen.event(event)
        stage = event.job_id, event.stage
        if event.kind == "stage-finished":
            self._finished.add(stage)
        elif event.kind == "stage-begun" and stage in self._finished:
            self._again.add(stage)
