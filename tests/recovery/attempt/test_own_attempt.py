"""What an attempt tells of itself, and what that costs."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.attempts import SparkApplication
from jrs.records.codec import decode, encode
from jrs.records.model import AttemptRecord
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.code_version import code_version_of
from jrs.recovery.attempt.own_attempt import OwnAttempt
from jrs.store import history
from tests.recovery.lead import Lead
from tests.recovery.support import FaultyMemory
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
    kept = backend.get(stored.key)
    assert kept is not None
    assert kept.value == stored.value
    assert [one.spark for one in own.ended(1.0, "finished")[0]] == [spark]


def test_a_process_records_its_code_with_itself(memory: FaultyMemory, tmp_path: Path) -> None:
    """In the one commit: so a leader knows it whose attempt dies at once."""
    lead = Lead(memory, tmp_path)
    record = AttemptRecord("job", mark="m")
    memory.commit(Create(keys.ATTEMPTS + "job", encode(record)))
    before = memory.get(keys.ATTEMPTS + "job")
    OwnAttempt(record).announce(memory, lead.leadership.fence, f"{__name__}:of_no_meaning")
    stored = memory.get(keys.ATTEMPTS + "job")

    assert before is not None
    assert stored is not None
    assert stored.version == before.version + 1
    found = decode(AttemptRecord, stored.value, stored.key)
    assert (found.pid, found.code) == (os.getpid(), digest(Path(__file__)))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def test_the_code_of_an_entry_point_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its module nor the packages around it: what is wrong there must not end the process
    before it is known."""
    for name in (
        "whole/__init__.py",
        "whole/part/__init__.py",
        "whole/part/jobs.py",
        "space/in/one.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"raise SystemExit({name!r})")
    monkeypatch.syspath_prepend(tmp_path)

    for entry, name in (
        ("whole.part.jobs:main", "whole/part/jobs.py"),
        ("whole.part:main", "whole/part/__init__.py"),
        ("space.in.one:main", "space/in/one.py"),
        (f"{tmp_path}/whole/part/jobs.py:main", "whole/part/jobs.py"),
    ):
        assert code_version_of(entry) == digest(tmp_path / name)
    for entry in ("none.such:main", "whole.none:main", "json.decoder.x:main", "sys:exit", "x.py:f",
                  "space:main", ":f", "..:f", "a\0b:f", "a\0b.py:f"):  # fmt: skip
        assert code_version_of(entry) == ""
    monkeypatch.setenv("JRS_CODE_VERSION", "v1.4")
    assert code_version_of("none.such:main") == "v1.4"
