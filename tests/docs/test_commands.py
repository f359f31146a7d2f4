"""The commands of the pages succeed, on a cluster that has the jobs which they name.

Two pages and the tutorial are sessions, whose output is compared: see `test_sessions.py`. Here the
pages show commands that belong to no common session, most of them without what they print.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import jrs
from jrs.testing.masters import Masters
from tests.docs import session
from tests.docs.test_docs import CONSOLE, SESSIONS
from tests.support import BOUND, until

ELSEWHERE = {
    "jrs chaos": "minutes; see tests/testing",
    "jrs demo": "minutes on Spark; see tests/spark/test_demo.py",
    "jrs open": "it needs a browser; see tests/sidecar",
    "doctor --spark": "it needs Spark; see tests/spark/test_doctor.py",
    "etcd://": "it needs etcd; see tests/cli/test_migrate.py",
    "s3://": "it needs a bucket; see tests/spark/test_objects.py",
    "--openlineage": "it needs a receiver; see tests/recovery/test_openlineage.py",
    "0.0.0.0:8008": "another program of this host may have the port",
    "/var/lib/jrs-test": "it is restored from a backup; see tests/deploy/test_backup.py",
    "127.0.0.1:8080": "another program of this host may have the port",
}
"""Parts of the commands that do not run here, and why not."""

EXITS = {
    "jrs explain nightly-7 --at 03:12": 2,  # What was decided then depends on the time of day.
    "jrs explain nightly-7 --epoch 7": 2,  # There was no seventh leader.
    "jrs cleanup force nightly-7": 2,  # Nothing is left of the job.
    "jrs doctor --storage /srv/jrs-files": 1,  # The cluster has another storage here.
    "jrs wait verdict": 1,  # There is no history to judge.
}
"""What a command exits with here, if not with 0."""

ETL = """
import time


def nightly(job, **given):
    return given


report = big = load = f = nightly


def live(job, **given):
    while True:
        job.check()
        time.sleep(0.1)


def fails(job, **given):
    for name in ("load", "report"):
        job.stage(name, lambda stage: None)
    if "." not in job.job_id:  # A retry has another id.
        raise ValueError("no disk")
"""
"""The functions that the pages name."""

JOBS = {
    "applications.md": {"nightly-2026-11-20": "etl:live"},
    "operating.md": {"nightly-7": "etl:nightly", "live": "etl:live"},
    "snapshots.md": {"orders": "etl:live", "nightly-2026-11-20": "etl:fails"},
    "stopping.md": {"JOB": "etl:live"},
}
"""The jobs that a page takes to be there."""

PLACES = {"/var/lib/jrs": "jrs", "/opt/": "opt/", "/run/secrets/": "opt/", "/mnt/usb/": "opt/",
          "/etc/jrs/": "opt/", "/run/jrs/": "opt/", "/srv/": "srv/"}  # fmt: skip
"""What the pages call the reader's folders, and those here."""


def commands(page: Path) -> list[str]:
    """Return the commands of a page that run here."""
    found = []
    for block in CONSOLE:
        if block.page == page and not block.mark:
            for line in re.sub(r"\\\n *", " ", block.text).splitlines():
                command = re.sub(r"\s+#.*| &$", "", line.removeprefix("$ "))
                if line.startswith("$ jrs ") and not any(part in command for part in ELSEWHERE):
                    found.append(command)
    return found


PAGES = [page for page in dict.fromkeys(block.page for block in CONSOLE)
         if page not in SESSIONS and commands(page)]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_succeeds(page: Path, tmp_path: Path) -> None:
    """One after the other; a command that shows what it refuses exits with 2."""
    url = prepared(tmp_path)
    programs = session.environment(tmp_path / "bin", str(tmp_path / "modules"))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "JRS_BACKEND": url,
        "XDG_RUNTIME_DIR": str(tmp_path / "opt"),
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
    }
    modules = os.pathsep.join([str(tmp_path / "modules"), str(session.ROOT)])
    with Masters(url, environment={"PYTHONPATH": modules}) as masters, jrs.connect(url) as client:
        for name in ("m1", "m2"):
            masters.start(name)
        until(lambda: len(client.masters()) == 2, "both masters are there")
        for job_id, entry in JOBS.get(page.name, {}).items():
            job = client.submit(entry, id=job_id, check=False)
            if entry == "etl:live":
                masters.until(partial(runs, job), "it runs")
            else:
                job.result(timeout=BOUND)
        for command in commands(page):
            if command.startswith(("jrs master", "jrs serve")):
                succeeds_when_stopped(command, tmp_path, environment, client)
            else:
                succeeds(command, tmp_path, environment)


def runs(job: jrs.JobHandle) -> bool:
    return job.status() is jrs.JobStatus.RUNNING


def succeeds(command: str, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", localized(command, folder)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * BOUND,
    )
    assert done.returncode == EXITS.get(command, 0), f"{command}: {done.stdout}"


def succeeds_when_stopped(
    command: str, folder: Path, environment: dict[str, str], client: jrs.Client
) -> None:
    """Start a command that does not end, and stop it once it works."""
    before, log = {one.info.name for one in client.masters()}, folder / "log"
    with (
        log.open("w") as out,
        subprocess.Popen(
            ["bash", "-c", f"exec {localized(command, folder)}"],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        ) as process,
    ):  # fmt: skip
        try:
            until(
                lambda: (
                    process.poll() is not None
                    or {one.info.name for one in client.masters()} - before
                    or "serving cluster" in log.read_text()
                ),
                f"{command} works",
            )
            process.terminate()
            process.wait(BOUND)
        finally:
            process.kill()
    assert process.returncode == 0, f"{command}: {log.read_text()}"


def prepared(folder: Path) -> str:
    """Make the files that commands name; return the URL of the cluster's backend."""
    package = folder / "modules" / "etl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(ETL)
    for name in ("jobs", "v2"):
        (package / f"{name}.py").write_text("from etl import f, live as delays, nightly\n")
    for name in ("opt/lib/udfs.jar", "opt/lib/rules.zip", "opt/notify", "spark.conf", "etl.env"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "opt" / "notify").chmod(0o700)
    for name, text in {"db": "secret", "spec.key": "0" * 64 + "\n"}.items():
        (folder / "opt" / name).write_text(text)
        (folder / "opt" / name).chmod(0o600)
    python = folder / "opt" / "venvs" / "etl" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    for name in ("srv/jrs", "srv/jrs-files"):
        (folder / name).mkdir(parents=True)
    return (folder / "jrs").as_uri()


def localized(command: str, folder: Path) -> str:
    """Return a command with the reader's folders inside of `folder`."""
    for place, here in PLACES.items():
        command = command.replace(place, f"{folder}/{here}")
    return command


def test_no_exception_is_left_over() -> None:
    """Each exit code is that of a command, and each part that is not run is in a page."""
    shown = [command for page in PAGES for command in commands(page)]
    assert set(EXITS) <= set(shown)
    texts = "\n".join(block.text for block in CONSOLE)
    assert [part for part in ELSEWHERE if part not in texts] == []
