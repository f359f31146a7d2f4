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
from jrs.contract.errors import HistoryChanged, InvalidInput, NotFound, Unavailable, WrongState
from jrs.contract.texts import shown
from jrs.records.checks import check_stage_name
from jrs.records.heads import StreamHead
from jrs.records.stages import TAKEN_OVER, StageSummary
from jrs.store import heads, restores
from jrs.store.jobs import JobCatalog, JobView
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore

from ..checkpoint_format.sink_log import SINK_LOG
from ..files import batch_folders
from ..files.job_folders import JobStorage
from ..files.storage_identity import needed_storage

_TRIES = 100
"""Looks at an output that changes each time, before giving up."""
_STREAM = re.compile(r"g(?P<generation>[1-9][0-9]{0,17})\.b(?P<batch>-1|0|[1-9][0-9]{0,17})")
_STAGE = re.compile(r"e[0-9]{1,18}\.a[0-9]{1,18}")


@attrs.frozen
class OutputFiles:
    """Files of a stage's output that count.

    Attributes:
        paths: absolute; those of a stream in the order of its batches.
        cursor: for the next look, as `since`. Empty if the stage has no output yet.
    """

    paths: tuple[Path, ...]
    cursor: str = ""


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
        view = JobCatalog(backend).view(job_id)
        folders = needed_storage(backend, None if storage is None else Path(storage))
        return output_files(backend, folders, view, stage, since)


def output_files(
    backend: Backend, storage: JobStorage, view: JobView, stage: str, since: str
) -> OutputFiles:
    """Return the files of a stage that count; see `JobHandle.files`."""
    check_stage_name(stage)
    if since and not (_STREAM.fullmatch(since) or _STAGE.fullmatch(since)):
        raise InvalidInput(
            f"since={shown(since)} is not a cursor: give one that an earlier look has returned"
        )
    output = storage.published(view.job_id, stage, temporary=False)
    if (output / SINK_LOG).exists():
        raise WrongState(
            f"stage {stage!r} of job {view.job_id!r} writes with a sink of Spark's, whose log says "
            "which files count: read them with spark.read"
        )
    if since and not heads.are_kept(backend):
        raise WrongState(
            f"cluster {backend.cluster!r} does not record yet which batches count: since= needs "
            f"its format {heads.SINCE_FORMAT}"
        )
    finished = _finished(view, stage)
    if finished is None or finished.attempt != TAKEN_OVER:
        found = _of_stream(backend, view, stage, output, since)
        if found is not None:
            return found
    if finished is None and view.entry is None:
        return OutputFiles((), since)
    if finished is None and not output.is_dir():
        raise NotFound(f"job {view.job_id!r} has ended, and no stage {stage!r} of it has output")
    found = _of_batch_stage(view, stage, output, finished, since)
    restores.check_none(backend, view.job_id)
    return found


def _of_stream(
    backend: Backend, view: JobView, stage: str, output: Path, since: str
) -> OutputFiles | None:
    """Return the files of a stream; None if the stage is none, or has committed no rows."""
    for _ in range(_TRIES):
        head = _head(backend, view.job_id, stage)
        published = sorted(batch_folders.published(output))
        if head is not None:
            generation = head.generation
        elif published or (view.entry is not None and _STREAM.fullmatch(since)):
            generation = _without_head(backend, view.job_id, stage)
        else:
            return None
        behind = _behind(since, generation, view.job_id, stage)
        newest = _newest(head, published)
        batches = [batch for batch in published if behind < batch <= newest]
        try:
            paths = [path for batch in batches for path in _files(output / f"batch={batch}")]
        except FileNotFoundError:
            continue  # A restore, or its user, takes it away.
        restores.check_none(backend, view.job_id)
        if _generation(_head(backend, view.job_id, stage)) == _generation(head):
            return OutputFiles(tuple(paths), f"g{generation}.b{max(newest, behind)}")
    raise Unavailable(
        f"the output of stage {stage!r} of job {view.job_id!r} changed at each of {_TRIES} looks"
    )


def _without_head(backend: Backend, job_id: str, stage: str) -> int:
    """Return the generation of a stream that has no head."""
    has_ended = JobResultStore(backend).has_entry(job_id)
    if not has_ended and heads.are_kept(backend):
        raise WrongState(
            f"it is not recorded yet which batches of stage {stage!r} count: job {job_id!r} has "
            "not been started since it was made, or since the cluster's format was raised"
        )
    return heads.ended_generation(backend, job_id, stage)


def _newest(head: StreamHead | None, published: list[int]) -> int:
    """Return the newest batch that counts and is published."""
    if head is None:
        return max(published, default=-1)
    if head.folder and head.batch not in published:
        return head.batch - 1  # It is committed, and will be published.
    return head.batch


def _behind(since: str, generation: int, job_id: str, stage: str) -> int:
    """Return the batch behind which a look begins."""
    if not since:
        return -1
    cursor = _STREAM.fullmatch(since)
    if cursor is None or int(cursor["generation"]) != generation:
        raise HistoryChanged(
            f"the output of stage {stage!r} of job {job_id!r} was restored to an earlier batch "
            f"since {since}: read it from its beginning, without a cursor"
        )
    return int(cursor["batch"])


def _of_batch_stage(
    view: JobView, stage: str, output: Path, finished: StageSummary | None, since: str
) -> OutputFiles:
    """Return the files of a finished stage: all of them, or none if they were returned before."""
    # The result of a job with many stages leaves older ones out.
    cursor = "e0.a0" if finished is None else f"e{finished.epoch}.a{finished.attempt}"
    if since and since != cursor:
        raise HistoryChanged(
            f"stage {stage!r} of job {view.job_id!r} ran again since {since}: read its output from "
            "its beginning, without a cursor"
        )
    return OutputFiles(() if since else tuple(_files(output)), cursor)


def _finished(view: JobView, stage: str) -> StageSummary | None:
    """Return what is known of a finished stage; None if it has not finished."""
    result = view.entry.result if view.entry is not None else None
    summaries = [record.summary() for record in view.stages] + list(result.stages if result else ())
    return next((one for one in summaries if one.name == stage), None)


def _head(backend: Backend, job_id: str, stage: str) -> StreamHead | None:
    found = heads.stored(backend, job_id, stage)
    return None if found is None else found[0]


def _generation(head: StreamHead | None) -> int | None:
    return None if head is None else head.generation


def _files(folder: Path) -> list[Path]:
    """Return the files below a folder, in order, without those that Spark takes for hidden."""
    if not folder.is_dir():
        return []
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if not _is_hidden(path.relative_to(folder))]


def _is_hidden(path: Path) -> bool:
    return any(part[0] in "._" for part in path.parts)
