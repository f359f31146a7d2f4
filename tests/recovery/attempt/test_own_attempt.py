"""What an attempt tells of itself, and what that costs."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.attempts import SparkApplication
from jrs.records.codec import encode
from jrs.records.model import AttemptRecord
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.own_attempt import OwnAttempt
from jrs.store import history
from tests.recovery.lead import Lead
from tests.support import until

LOCAL = SparkApplication("local-1", "local[2]")


@pytest.mark.parametrize("spark", [LOCAL, None])
def test_the_history_names_a_local_application_for_free(
    backend: Backend, tmp_path: Path, spark: SparkApplication | None
) -> None:
    """It rides on the commits of the events: as many as without Spark, and of as many records."""
    lead = Lead(backend, tmp_path)
    record = AttemptRecord("job", master="me")
    own = OwnAttempt(record)
    stored = Create(keys.ATTEMPTS + "job", encode(record))
    backend.commit(stored)
    run = AttemptRun(attrs.evolve(lead.context(), own=own))
    before = len(list(backend.scan("")))
    if spark is not None:
        own.runs_here(spark)
    run.job.stage("s", lambda stage: None)
    until(lambda: len(history.read(backend, "job")) == 2, "the stage is begun and marked")

    assert [(one.about or {}).get("spark") for one in history.read(backend, "job")] == (
        [spark and spark.id] * 2
    )
    assert len(list(backend.scan(""))) == before + 2 * 2 + 1  # Events, their places, the mark.
    # A later leader must not take it for one on a cluster.
    assert backend.get(stored.key) == attrs.evolve(backend.get(stored.key), value=stored.value)
    assert [one.spark for one in own.ended(1.0, "finished")[0]] == [spark]
