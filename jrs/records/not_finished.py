"""JobNotFinished: the error of a caller that needs a job to have FINISHED."""

from __future__ import annotations

from jrs.contract.errors import JrsError
from jrs.records.model import JobResult


class JobNotFinished(JrsError):
    """The awaited job ended FAILED or CANCELED."""

    def __init__(self, result: JobResult) -> None:
        self.result = result
        why = f": {result.failure.message}" if result.failure else ""
        super().__init__(f"job {result.job_id!r} ended {result.status.name}{why}")
