"""What a JVM, and Spark's Python workers behind it, inherit of how the backend is reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from jrs import JobResultStore, JobSpec
from jrs.records.model import JobStatus
from jrs.store.jobs import JobCatalog
from jrs.testing.masters import Masters

from .support import BOUND, JOBS, job

DRIVER = """
import importlib.util, json, os, sys
import jrs

spec = importlib.util.spec_from_file_location("jobs", sys.argv[3])
jobs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(jobs)
found = jrs.run(
    lambda driver: driver.run("looks", jobs.jvm_environment), sys.argv[1],
    name="main", storage=sys.argv[2],
)
print(json.dumps([found, os.environ["JRS_BACKEND_PASSWORD"]]))
"""


def secrets(folder: Path) -> dict[str, str]:
    key = folder / "sesame"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    return {
        "JRS_BACKEND": "etcd://me:sesame@host/x",
        "JRS_BACKEND_USER": "sesame",
        "JRS_BACKEND_PASSWORD": "sesame",
        "JRS_SPEC_KEY_FILE": str(key),
        "PLAIN": "seen",
    }


def check(found: dict[str, str]) -> None:
    assert found.keys() == {"jvm", "worker"}
    for place, environment in found.items():
        assert "PLAIN" in environment, place
        assert "sesame" not in environment, place


def test_of_an_attempt_in_a_process(tmp_path: Path) -> None:
    """X3: neither the JVM of an attempt nor Spark's Python workers hold a secret."""
    url, environment = (tmp_path / "store").as_uri(), secrets(tmp_path)
    del environment["JRS_SPEC_KEY_FILE"]  # Else only signed jobs would run.
    with Masters(url, storage=tmp_path / "files", environment=environment) as masters:
        JobCatalog(masters.backend).submit(JobSpec("looks", job("jvm_environment")))
        masters.start("m")
        result = JobResultStore(masters.backend).wait("looks", BOUND)

    assert result.status is JobStatus.FINISHED, result.failure
    check(result.payload)


def test_of_a_job_in_its_driver(tmp_path: Path) -> None:
    """X3: nor do those of a driver, which itself keeps what it needs to open the backend again."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, (tmp_path / "store").as_uri(), tmp_path / "files", JOBS],
        env={**os.environ, **secrets(tmp_path)}, capture_output=True, text=True, timeout=BOUND,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    found, kept = json.loads(done.stdout.splitlines()[-1])
    check(found)
    assert kept == "sesame"
