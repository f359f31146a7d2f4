"""Which files of a stage's output count, and which of them are new since an earlier look.

A folder shows what is there, not what counts: Spark's readers list it once, and a batch may appear,
or a restore may take batches back, while they do. The head of a stream says which batches count
(see `jrs.store.heads`).
"""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import (
    HistoryChanged,
    InvalidInput,
    NotFound,
    ResultExpired,
    Unavailable,
    WrongState,
)
from jrs.contract.operations import Record
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.records.checks import check_job_id, check_stage_name
from jrs.records.heads import StreamHead
from jrs.records.model import ResultState
from jrs.records.stages import TAKEN_OVER, StageSummary
from jrs.store import heads, restores
from jrs.store.job_views import JobView
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.stored_result import check_certain

from ..files.job_folders import JobStorage
from ..files.known_storage import needed_storage
from .stage_output import Files, OutputInFolder, OutputInObjects, OutputObject, StageOutput

_TRIES = 100
"""Looks at an output that changes each time, before giving up."""
_STREAM = re.compile(r"g(?P<generation>[1-9][0-9]{0,17})\.b(?P<batch>-1|0|[1-9][0-9]{0,17})")
_STAGE = re.compile(r"e[0-9]{1,18}\.a[0-9]{1,18}")


@attrs.frozen
class OutputFiles:
    """Files of a stage's output that count.

    Attributes:
        cursor: for the next look, as `since`. Empty if there is none: the stage has no output yet,
            the job's result was expired, or the cluster's format is older than 6.
        objects: the files, where the storage has objects; those of a stream in the order of its
            batches.
    """

    _paths: tuple[Path, ...]
    cursor: str = ""
    objects: tuple[OutputObject, ...] = ()
    _folder: Path | None = attrs.field(default=None, eq=False, repr=False)
    """What the paths lie in."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files' paths, absolute; those of a stream in the order of its batches.

        Raises:
            WrongState: they are objects: use `objects`.
        """
        if self.objects:
            raise WrongState(
                f"the files are objects, such as {self.objects[0].url}: use .objects, or read them "
                "with spark.read.format('jrs')"
            )
        return self._paths

    @property
    def names(self) -> tuple[str, ...]:
        """The files' paths in the stage's output, such as ``batch=3/part-….parquet``, in the order
        of `paths` or `objects`."""
        if self.objects or self._folder is None:
            return tuple(one.name for one in self.objects)
        return tuple(path.relative_to(self._folder).as_posix() for path in self._paths)


def files(
    url: str,
    job_id: str,
    stage: str,
    since: str = "",
    *,
    cluster: str = "default",
    storage: str | Path | None = None,
) -> OutputFiles:
    """Return the files of a stage's output that count: `JobHandle.files` in one call.

    Args:
        url, cluster, storage: as in `jrs.connect`. A cluster that does not exist is not created.
        job_id, stage, since: as in `JobHandle.files`.

    Raises:
        As `jrs.connect` and `JobHandle.files`.

    Example::

        pyarrow.parquet.read_table(jrs.files("file:///var/lib/jrs", "live", "words").paths)
    """
    with open_backend(url, cluster=cluster, create=False) as backend:
        folders = needed_storage(backend, storage)
        return output_files(backend, folders, job_id, stage, since)


def output_files(
    backend: Backend, storage: JobStorage, job_id: str, stage: str, since: str
) -> OutputFiles:
    """Return the files of a stage that count; see `JobHandle.files`."""
    check_job_id(job_id)
    check_stage_name(stage)
    if since != "" and not (
        isinstance(since, str) and (_STREAM.fullmatch(since) or _STAGE.fullmatch(since))
    ):
        raise InvalidInput(
            f"since={shown(since)} is not a cursor: give one that an earlier look has returned"
        )
    for _ in range(_TRIES):
        # The head first: an output that is read later has all batches before it. Batches that are
        # committed meanwhile come with the next look.
        spec, head = backend.get(keys.JOBS + job_id), _head(backend, job_id, stage)
        before = _state(spec, head)
        try:
            output = _output(backend, storage, job_id, stage, head)
            look = _Look(backend, output, head, JobCatalog(backend).view(job_id), stage, since)
            found = look.files()
        except FileNotFoundError:
            continue  # A restore, or the output's owner, takes it away.
        restores.check_none(backend, job_id)
        spec, head = backend.get(keys.JOBS + job_id), _head(backend, job_id, stage)
        if _state(spec, head) == before:
            return found
    raise Unavailable(
        f"the output of stage {stage!r} of job {job_id!r} changed at each of {_TRIES} looks"
    )


def _of(output: StageOutput, found: Files, cursor: str) -> OutputFiles:
    """Return files of either kind in an output, with their cursor."""
    paths = tuple(one for one in found if isinstance(one, Path))
    objects = tuple(one for one in found if isinstance(one, OutputObject))
    return OutputFiles(paths, cursor, objects, Path(output.where))


def _state(spec: Record | None, head: StreamHead | None) -> tuple[object, ...]:
    """Return what changes with each restore, and with the end of the job."""
    return spec and spec.version, head and head.generation


def _output(
    backend: Backend, storage: JobStorage, job_id: str, stage: str, head: StreamHead | None
) -> StageOutput:
    if storage.objects is not None:
        return OutputInObjects(backend, storage.objects, job_id, stage, head)
    return OutputInFolder(storage.published(job_id, stage, temporary=False))


def _head(backend: Backend, job_id: str, stage: str) -> StreamHead | None:
    found = heads.stored(backend, job_id, stage)
    return None if found is None else found[0]


@attrs.frozen
class _Look:
    """One look at the output of a stage."""

    _backend: Backend
    _output: StageOutput
    _head: StreamHead | None
    """As it was before the output was read."""
    _view: JobView
    _stage: str
    _since: str

    def files(self) -> OutputFiles:
        """Return the files that count.

        Raises:
            CorruptRecord: it is not known whether the job has ended.
            FileNotFoundError: the output was changed meanwhile.
        """
        entry = self._view.entry
        check_certain(entry)
        if entry is not None and entry.state is ResultState.EXPIRED and self._since:
            raise ResultExpired(
                f"the result of job {self._view.job_id!r} was expired, and with it what "
                f"{self._since} stands for: look without a cursor"
            )
        if self._output.has_sink_log(anywhere=False):
            raise self._has_log()
        finished = self._finished()
        found = None
        if finished is None or finished.attempt != TAKEN_OVER:
            found = self._of_stream()
        if found is None:
            found = self._of_batch_stage(finished)
        if entry is not None and entry.state is ResultState.EXPIRED:
            return attrs.evolve(found, cursor="")
        return found

    def _of_stream(self) -> OutputFiles | None:
        """Return the files of a stream; None if the stage is none, or has committed no rows."""
        head, output = self._head, self._output
        cursor = _STREAM.fullmatch(self._since)
        empty = head is None and not output.has_batches()
        if empty and (cursor is None or self._view.entry is None):
            return None
        if empty and output.files():
            return None  # A batch stage of a job that has ended.
        self._refuse_removed()
        kept = heads.are_kept(self._backend)
        if cursor is not None and not kept:
            raise WrongState(
                f"cluster {self._backend.cluster!r} does not record yet which batches count: "
                f"since= needs its format {heads.SINCE_FORMAT}"
            )
        if head is None and self._view.entry is None and kept:
            if JobResultStore(self._backend).has_entry(self._view.job_id):
                raise FileNotFoundError("the head: the job has ended meanwhile")
            if _head(self._backend, self._view.job_id, self._stage) is not None:
                raise FileNotFoundError("the head: the stage has begun meanwhile")
            raise WrongState(
                f"it is not recorded yet which batches of stage {self._stage!r} count: job "
                f"{self._view.job_id!r} has not been started since it was made, or since the "
                "cluster's format was raised"
            )
        generation = (
            heads.generation_of(self._backend, self._view.job_id)
            if head is None
            else head.generation
        )
        newest = output.newest(head)
        behind = -1
        if self._since:
            if cursor is None or int(cursor["generation"]) != generation:
                raise HistoryChanged(
                    f"the output of stage {self._stage!r} of job {self._view.job_id!r} was "
                    f"restored to an earlier batch since {self._since}: read it from its "
                    "beginning, without a cursor"
                )
            behind = int(cursor["batch"])
        place = f"g{generation}.b{max(newest, behind)}" if kept else ""
        return _of(output, output.rows(behind, newest), place)

    def _of_batch_stage(self, finished: StageSummary | None) -> OutputFiles:
        """Return the files of a finished stage: all of them, or none if they were returned before.

        A stage that has not finished has none.
        """
        job_id, stage, output = self._view.job_id, self._stage, self._output
        has_ended = self._view.entry is not None
        record = next((one for one in self._view.stages if one.name == stage), None)
        if record is not None and (record.temporary or record.target is not None):
            where = f"at {record.target}" if record.target else "temporary, for later stages"
            raise WrongState(f"the output of stage {stage!r} of job {job_id!r} is {where}")
        if finished is None and not has_ended:
            return OutputFiles((), self._since)
        if record is not None and record.published is not None and not output.exists():
            return OutputFiles((), self._since)  # It is recorded, and about to be published.
        if finished is None and not output.exists():
            raise NotFound(f"job {job_id!r} has ended, and no stage {stage!r} of it has output")
        # The result of a job with many stages leaves older ones out.
        cursor = self._since if finished is None else f"e{finished.epoch}.a{finished.attempt}"
        if self._since and self._since != cursor:
            raise HistoryChanged(
                f"stage {stage!r} of job {job_id!r} ran again since {self._since}: read its output "
                "from its beginning, without a cursor"
            )
        if self._since:
            return OutputFiles((), cursor)
        self._refuse_removed()
        if output.has_sink_log(anywhere=True):
            raise self._has_log()
        return _of(output, output.files(), cursor or "e0.a0")

    def _refuse_removed(self) -> None:
        """Raise `NotFound` if a stage of a job that has ended had output, and it is missing."""
        finished = self._finished()
        has_ended = self._view.entry is not None
        if has_ended and finished and finished.has_output and not self._output.exists():
            raise NotFound(
                f"the output of stage {self._stage!r} of job {self._view.job_id!r}, which has "
                f"ended, is missing from {self._output.where}: it was removed, for its age or by "
                "an operator, or is in another storage"
            )

    def _has_log(self) -> WrongState:
        return WrongState(
            f"stage {self._stage!r} of job {self._view.job_id!r} writes with a sink of Spark's, "
            "whose log says which files count: read them with spark.read"
        )

    # -- what is known of the stage --------------------------------------------------------

    def _finished(self) -> StageSummary | None:
        """Return what is known of the stage's end; None if it has not finished."""
        entry = self._view.entry
        ended = entry.result.stages if entry is not None and entry.result is not None else ()
        summaries = [*(record.summary() for record in self._view.stages), *ended]
        return next((one for one in summaries if one.name == self._stage), None)
