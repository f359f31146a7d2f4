"""SinkLogs: what Spark's own file sinks leave in a job's output next to the rows.

Such a sink writes files first and then names the valid ones in a log that only Spark
reads. Any other reader sees the rows of batches that were run twice as duplicates. If
the log outlives the checkpoint, the next job that writes there silently loses its first batches. So
cleanup removes both when the job has ended: the files that the log does not name, then the log. The
table stays, and is the same for every reader.
"""

from __future__ import annotations

from pathlib import Path

from ..checkpoint_format.sink_log import SINK_LOG, uncounted
from ..files.job_folders import JobStorage
from ..rules.resource import Resource


class SinkLogs(Resource):
    """The logs of the job's file sinks, and the files that they do not name."""

    name = "sink logs"

    def __init__(self, storage: JobStorage) -> None:
        self._storage = storage

    def clean(self, job_id: str) -> None:
        for log in self._logs(job_id):
            for path in [*uncounted(log), log]:
                self._storage.discard_output(job_id, path)

    def describe(self, job_id: str) -> list[str]:
        return [str(path) for log in self._logs(job_id) for path in (*uncounted(log), log)]

    def _logs(self, job_id: str) -> list[Path]:
        return sorted((self._storage.folder(job_id) / "out").glob(f"*/{SINK_LOG}"))
