"""SinkLogs: what Spark's own file sinks leave in a job's output next to the rows.

Such a sink writes files first and then names the valid ones in a log that only Spark
reads. Any other reader sees the rows of batches that were run twice as duplicates. If
the log outlives the checkpoint, the next job that writes there silently loses its first batches. So
cleanup removes both when the job has ended: Spark's files that the log does not name, then the log.
The table stays, and its rows are the same for every reader. So does what is of others.
"""

from __future__ import annotations

from pathlib import Path

from ..checkpoint_format.sink_log import removable
from ..files.job_folders import JobStorage
from ..files.safe_listing import is_folder, names_in
from ..rules.resource import Resource


class SinkLogs(Resource):
    """The logs of the job's file sinks, wherever in its output, and the files that they do not
    name."""

    name = "sink logs"

    def __init__(self, storage: JobStorage) -> None:
        self._storage = storage

    def clean(self, job_id: str) -> None:
        for output in self._outputs(job_id):
            # The logs last, and outer ones first: a crash leaves no file without the log that
            # names it in a table that still has one.
            for path in list(removable(output)):
                self._storage.discard_output(job_id, path)

    def describe(self, job_id: str) -> list[str]:
        outputs = self._outputs(job_id)
        return [str(path) for one in outputs for path in removable(one)]

    def _outputs(self, job_id: str) -> list[Path]:
        out = self._storage.folder(job_id) / "out"
        return [path for name in names_in(out) if is_folder(path := out / name)]
