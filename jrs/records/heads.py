"""What is stored of the batches of streaming stages: which of them count."""

from __future__ import annotations

import attrs

from jrs.records.checks import a_job_id
from jrs.records.stored import Stored


@attrs.frozen
class StreamHead(Stored):
    """The newest batch of a streaming stage whose rows count. An attempt moves it by one batch at a
    time, under its fence; that is the commit of the batch."""

    job_id: str = attrs.field(validator=a_job_id)
    stage: str
    generation: int
    """Grows when the job is restored: then batches get the numbers of earlier ones."""
    batch: int
    """-1 before the first batch."""
    plan: str = ""
    """The digest of what the batch has read; empty if it is not known."""
    folder: str = ""
    """The staged folder with the batch's rows; empty if none has to be published."""


@attrs.frozen
class EndedGenerations(Stored):
    """The generations of the streams of a job that was restored, and then ended and cleaned up. It
    is kept as long as the job's result."""

    job_id: str = attrs.field(validator=a_job_id)
    generations: dict[str, int]
    """By stage, if more than 1."""
