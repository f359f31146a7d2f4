"""Job.log: visible by default, and under the application's own configuration once there is one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from jrs.records.model import JobSpec
from jrs.records.policies import RestartPolicy
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from tests.recovery.lead import Lead
from tests.recovery.support import CLUSTER, FaultyMemory

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
JOB = """
import logging
import os
import sys

import jrs


def add(job, a=1):
    job.log.debug("hidden")
    job.log.info("a is %d", a)
    logging.getLogger("jrs.job").info("of no job")
    return a


def dies(job):
    job.log.info("almost done")
    os._exit(3)


def main(driver):
    return driver.run("add", add, a=2)
"""
RUN = JOB + "jrs.run(main, sys.argv[1], name='main', ttl=30.0)\n"


def run(tmp_path: Path, *before: str) -> list[str]:
    """Return what an application prints to stderr that runs its job in a thread of its own."""
    program = tmp_path / "application.py"
    program.write_text("\n".join([*before, RUN]))
    url = (tmp_path / "store").as_uri()
    done = subprocess.run(
        [sys.executable, str(program), url], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_a_thread_of_an_application_that_configures_nothing(tmp_path: Path) -> None:
    """What a job logs is printed, and nothing else of jrs."""
    known, other = run(tmp_path)

    assert re.fullmatch(rf"{STAMP} INFO add, attempt 1: a is 2", known)
    assert re.fullmatch(rf"{STAMP} INFO -, attempt -: of no job", other)


def test_an_application_that_configures_logging(tmp_path: Path) -> None:
    """Its handler alone gets the records, with what they are of; and they are not printed twice."""
    configures = 'import logging; logging.basicConfig(format="mine: %(name)s %(message)s")'

    assert run(tmp_path, configures) == ["mine: jrs.job a is 2", "mine: jrs.job of no job"]


def test_a_configuration_that_disables_existing_loggers(tmp_path: Path) -> None:
    """As `dictConfig` and `fileConfig` do by default: the loggers of jrs exist by then."""
    configures = """
import logging.config
import jrs
jrs.run
logging.config.dictConfig({
    "version": 1,
    "formatters": {"mine": {"format": "mine: %(name)s"}},
    "handlers": {"all": {"class": "logging.StreamHandler", "formatter": "mine"}},
    "root": {"handlers": ["all"]},
})
"""
    assert run(tmp_path, configures) == ["mine: jrs.job"] * 2
    assert "mine: jrs.application" in run(tmp_path, configures)  # The stored result is returned.


def test_a_level_of_the_application(tmp_path: Path) -> None:
    """A level that was set before is kept."""
    quiet = 'import logging; logging.getLogger("jrs.job").setLevel(logging.WARNING)'

    assert run(tmp_path, quiet) == []


def test_a_process_of_its_own(tmp_path: Path) -> None:
    """What a job logs is in the log of its attempt, whose end a failure shows."""
    (tmp_path / "job.py").write_text(JOB)
    with Masters((tmp_path / "store").as_uri(), cluster=CLUSTER, ttl=30.0) as masters:
        masters.start("m")
        once = RestartPolicy(attempts=1)
        JobCatalog(masters.backend).submit(
            JobSpec("dying", f"{tmp_path}/job.py:dies", restart=once)
        )
        failure = JobResultStore(masters.backend).wait("dying", 60).failure

    assert failure is not None
    assert re.fullmatch(rf"{STAMP} INFO dying, attempt 1: almost done\n", failure.detail)


def test_what_a_record_holds(
    memory: FaultyMemory, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job, the attempt and the epoch, next to what the caller has given."""
    job = Lead(memory, root).job(attempt=2)
    job.log.warning("%d left", 3, extra={"rows": 3, "epoch": 9})
    (record,) = caplog.records
    held = vars(record)

    assert (record.name, record.getMessage()) == ("jrs.job", "3 left")
    assert (held["job_id"], held["attempt"], held["epoch"]) == ("job", 2, job.epoch)
    assert held["rows"] == 3
