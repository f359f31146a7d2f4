"""Exit codes: a program that reads 2 may rely on it that nothing was changed."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import attrs
import click
import pytest

import jrs as face
from jrs.backends.file.backend import FileBackend
from jrs.cli import jobs as jobs_command
from jrs.client.client import Client
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.operations import Create, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import JobResult, JobStatus, StopRecord, StopState
from tests.cli.conftest import Jrs
from tests.support import until

SUBMIT = ("submit", "sum", "jobs_here:add", "--wait")


def fails(error: Exception) -> object:
    def call(*_: object, **__: object) -> NoReturn:
        raise error

    return call


def test_an_unknown_outcome_is_no_refusal(jrs_here: Jrs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write may have happened."""
    monkeypatch.setattr(Client, "submit_spec", fails(OutcomeUnknown("the connection broke")))
    failed = jrs_here(*SUBMIT)

    assert (failed.returncode, failed.stderr) == (4, "jrs: the connection broke\n")


def test_a_backend_that_is_away(jrs_here: Jrs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same error is a refusal before the change, and none behind it."""
    with monkeypatch.context() as patch:
        patch.setattr(Client, "submit_spec", fails(Unavailable("etcd does not answer")))
        before = jrs_here(*SUBMIT)
    monkeypatch.setattr(jobs_command, "wait_for", fails(Unavailable("etcd does not answer")))
    behind = jrs_here(*SUBMIT)

    assert (before.returncode, behind.returncode) == (2, 4)
    assert behind.stderr == "submitted sum\njrs: etcd does not answer\n"


@pytest.fixture
def jobs(url: str) -> None:
    """A job that waits for a leader, two that have ended, and a folder that `jrs gc` removes."""
    with face.connect(url) as client:
        client.submit("jobs_here:add", id="waits")
        for job_id in ("ended-1", "ended-2"):
            client.results.create_dirty(
                JobResult(job_id, JobStatus.FINISHED, 1, finished_at=1.0), None
            )
            client.results.mark_clean(job_id, None)
        assert client.backend.default_storage is not None
        (client.backend.default_storage / "default" / ".trash" / "half-deleted").mkdir(parents=True)


CHANGES = [
    ["cancel", "waits"],
    ["suspend", "waits", "--no-wait"],
    ["upgrade", "waits", "--entry", "jobs_here:boom", "--no-wait"],
    ["fork", "waits", "--as", "copy"],
    ["pause"],
    ["expire", "ended-1"],
    ["expire", "--older-than", "0s"],
    ["gc"],
]
LOOKS = [
    ["list", "--json"],
    ["show", "waits", "--json"],
    ["explain", "waits", "--json"],
    ["history", "waits", "--json"],
    ["masters", "--json"],
    ["snapshot", "list", "waits", "--json"],
    ["storage"],
    ["cluster-format"],
    ["gc", "--dry-run"],
    ["fsck"],
    ["unpause"],
    ["resume", "waits"],
]


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("args", "code"),
    [*((args, 4) for args in CHANGES), *((args, 2) for args in LOOKS)],
    ids=lambda given: "-".join(given) if isinstance(given, list) else str(given),
)
def test_output_that_cannot_be_written(
    jrs_here: Jrs, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int
) -> None:
    """It is a refusal of who only looks, and none of who has changed something."""
    monkeypatch.setattr(click, "echo", fails(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))

    assert jrs_here(*args).returncode == code


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["wait", "ended-1"], 141),
        (["list"], 141),
        (["wait", "--help"], 141),
        (["expire", "ended-1"], 4),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else str(given),
)
def test_output_that_nobody_reads(home: Path, url: str, args: list[str], code: int) -> None:
    """It says nothing about the job, or about what was looked for."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "jrs", "--backend", url, *args]
    with os.fdopen(writes, "wb") as closed:
        done = subprocess.run(
            command, cwd=home, stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )

    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("args", "closed", "code"),
    [
        (["top", "--once"], ">&-", 0),
        (["wait", "ended-1"], "<&- >&- 2>&-", 0),
        (["expire", "waits"], "2>&-", 2),
    ],
)
def test_streams_that_are_closed(
    home: Path, url: str, args: list[str], closed: str, code: int
) -> None:
    """They ended commands by an exception, with exit code 1, which says that a job did not
    finish."""
    script = f"{shlex.join([sys.executable, '-m', 'jrs', '--backend', url, *args])} {closed}"
    done = subprocess.run(["bash", "-c", script], cwd=home, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (code, b"")


def test_streams_that_are_closed_are_open_in_children() -> None:
    """Else the next file of a child would get their number, with all that is printed there."""
    inherits = "import sys; sys.exit(None in (sys.stdin, sys.stdout, sys.stderr))"
    starts = (
        "import subprocess, sys; from jrs.cli import _replace_closed_streams;"
        "_replace_closed_streams();"
        f"sys.exit(subprocess.run([sys.executable, '-c', {inherits!r}]).returncode)"
    )
    script = f"{shlex.join([sys.executable, '-c', starts])} <&- >&- 2>&-"

    assert subprocess.run(["bash", "-c", script], check=False).returncode == 0


@pytest.mark.usefixtures("jobs")
def test_another_pipe_that_breaks(jrs_here: Jrs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who reads the output can close it; all else is said."""
    broken = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    monkeypatch.setattr(Client, "pause", fails(broken))

    done = jrs_here("pause")
    assert (done.returncode, "Broken pipe" in done.stderr) == (2, True)


def test_a_commit_that_may_have_happened(
    jrs_here: Jrs, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as a change, also if the command ends by another error."""
    with face.connect(url):
        pass

    def pause(client: Client, **_: object) -> NoReturn:
        with pytest.raises(OutcomeUnknown):
            client.backend.commit(Create("a", b""))
        raise Unavailable("etcd does not answer")

    monkeypatch.setattr(FileBackend, "_commit", fails(OutcomeUnknown("the connection broke")))
    monkeypatch.setattr(Client, "pause", pause)

    assert jrs_here("pause").returncode == 4


@pytest.mark.usefixtures("jobs")
def test_an_expiry_that_breaks_off(jrs_here: Jrs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how many results are gone, and that it is not done."""
    delete = face.JobResultStore.delete

    def deleting(store: face.JobResultStore, job_id: str) -> None:
        if job_id == "ended-2":
            raise Unavailable("etcd does not answer")
        delete(store, job_id)

    monkeypatch.setattr(face.JobResultStore, "delete", deleting)
    failed = jrs_here("expire", "ended-1", "ended-2")

    assert (failed.returncode, failed.stdout) == (4, "expired 1 result\n")


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_expiry_that_does_not_begin(
    jrs_here: Jrs, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """A refusal prints no result."""
    monkeypatch.setattr(face.JobResultStore, "expiring", fails(Unavailable("no answer")))
    failed = jrs_here("expire", "--older-than", "1d", *options)

    assert (failed.returncode, failed.stdout, failed.stderr) == (2, "", "jrs: no answer\n")


@pytest.mark.usefixtures("jobs")
def test_a_drain_that_the_job_refuses(jrs_here: Jrs, url: str) -> None:
    """It is an answer, as that the job was held: the request was durable, and is recorded."""

    def refuse() -> None:
        with face.connect(url) as client:
            until(lambda: any(client.backend.scan(keys.STOPS)), "the drain is requested")
            (stored,) = client.backend.scan(keys.STOPS)
            stop = decode(StopRecord, stored.value, stored.key)
            refused = attrs.evolve(stop, state=StopState.REFUSED, reason="it has timers")
            client.backend.commit(Update(stored.key, encode(refused), stored.version))

    with ThreadPoolExecutor(1) as pool:
        refusing = pool.submit(refuse)
        done = jrs_here("drain", "waits")
        refusing.result()

    assert done.returncode == 1
    assert done.stderr.endswith("jrs: job 'waits' cannot be drained: it has timers\n")


def test_a_stderr_that_is_full(url: str, home: Path) -> None:
    """The job is submitted, whether or not that can be said."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jrs", "--backend", url, "submit", "sum", "jobs_here:add"],
            cwd=home,
            stderr=full,
            timeout=60,
        )

    assert done.returncode == 4
    with face.connect(url) as client:
        assert [view.job_id for view in client.views()] == ["sum"]


def test_an_interrupt_while_modules_are_loaded(tmp_path: Path) -> None:
    """It is told in one line, as any other."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "list"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (130, "jrs: interrupted\n")
