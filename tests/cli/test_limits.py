"""Numbers without end, disks that take nothing, memory that is over: one line each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, Fenced
from jrs.contract.operations import Create, Fence
from jrs.records import keys
from jrs.records.codec import encode, with_job_id
from jrs.records.model import AttemptRecord, JobResult, JobSpec, JobStatus
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.job_records import RecoveryRecords
from jrs.recovery.rules.decision import Action, Attempt, Facts, Spec, Stop, decide
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import contents, lead
from tests.cli.conftest import Jrs
from tests.cli.hostile import HUGE, sealed
from tests.cli.test_bad_input import refused

MANY = "9" * 20
LONG = "9" * 300


@pytest.mark.parametrize(
    "args",
    [
        ["--arg", "a=" + "9" * 5000],
        ["--arg", "a=" + "[" * 100_000],
        ["--args", '{"a": ' + "9" * 5000 + "}"],
        ["--args", "[" * 100_000],
        ["--partitions", "9" * 5000],
        ["--delay", "9" * 5000],
    ],
    ids=lambda args: f"{args[0]} {args[1][:8]}",
)
def test_what_nobody_could_read_back(jrs_here: Jrs, args: list[str]) -> None:
    """D8: a number of 5,000 digits, or JSON that is nested too deeply, is refused in one line."""
    refused(jrs_here("submit", "j", "m:f", "--no-check", *args))


@pytest.mark.parametrize(
    ("args", "limit"),
    [
        (["submit", "j", "m:f", "--no-check", "--attempts", MANY], "attempts must be"),
        (["submit", "j", "m:f", "--no-check", "--partitions", MANY], "partitions must be"),
        (["submit", "j", "m:f", "--no-check", "--partitions", "32769"], "from 1 to 32768"),
        (["submit", "j", "m:f", "--no-check", "--keep-snapshots", MANY], "keep must be"),
        (["submit", "j", "m:f", "--no-check", "--delay", LONG], "at most 292 years"),
        (["submit", "j", "m:f", "--no-check", "--snapshot-every", LONG], "at most 292 years"),
        (["submit", "j", "m:f", "--no-check", "--snapshot-max-age", LONG], "at most 292 years"),
        (["rescale", "there", "--partitions", MANY], "from 1 to 32768"),
        (["suspend", "there", "--no-wait", "--grace", LONG], "at most 292 years"),
        (["list", "--limit", MANY], "--limit"),
        (["expire", "--older-than", "1d", "--keep", MANY], "--keep"),
        (["expire", "--older-than", "9" * 400], "at most 292 years"),
        (["list", "--since", "9" * 400], "--since is no time"),
        (["list", "--until", "9" * 400], "--until is no time"),
        (["snapshot", "create", "there", "--batch", f"s={'9' * 5000}"], "not a batch"),
        (["snapshot", "create", "there", "--batch", "s=²"], "not a batch"),
        (["master", "--max-attempts", MANY], "--max-attempts"),
    ],
    ids=lambda what: " ".join(map(str, what))[:40] if isinstance(what, list) else "",
)
def test_more_than_anybody_means(jrs_here: Jrs, url: str, args: list[str], limit: str) -> None:
    """S1: a count or a duration beyond any computer is refused, and nothing is changed."""
    with open_backend(url) as backend:
        JobCatalog(backend).submit(JobSpec("there", "m:f"))
        before = contents(backend)

        refused(jrs_here(*args), limit)

        assert contents(backend) == before


@pytest.mark.parametrize("body", [b'{"job_id":"j","a":%s}' % HUGE, b"[" * 100_000])
def test_a_record_of_which_nobody_knows_the_type(body: bytes) -> None:
    """D8: such a number in a record of any type is damage when it is read."""
    with pytest.raises(CorruptRecord, match="here"):
        with_job_id(sealed("spec", body), "k", "here")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount")
@pytest.mark.parametrize("command", [["list"], ["show", "j"], ["submit", "k", "m:f", "--no-check"]])
def test_a_disk_that_is_mounted_read_only(
    url: str, tmp_path: Path, home: Path, command: list[str]
) -> None:
    """D8: what is wrong with a read-only disk is said, for reading commands, too."""
    with open_backend(url) as backend:
        backend.commit(Create(keys.JOBS + "j", encode(JobSpec("j", "m:f"))))
    store = tmp_path / "store"
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77; shift; exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", store, sys.executable, "-m", "jrs", *command],
        cwd=home, env={**os.environ, "JRS_BACKEND": url}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")

    refused(done, "read-only")


HUNGRY = """
import resource, sys, threading
from jrs.cli import main
import jrs.cli.reading
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (48 << 20),) * 2)
threading.stack_size(int(sys.argv[1]))
sys.argv = ["jrs", "list", "--json", "--limit", "1000"]
main()
"""


@pytest.mark.parametrize("stack", [0, 1 << 30], ids=["records", "thread"])
def test_too_little_memory(url: str, home: Path, stack: int) -> None:
    """D8: a command that has too little memory says so in one line, whatever it needs it for."""
    with open_backend(url) as backend:
        store = JobResultStore(backend)
        for number in range(200):
            result = JobResult(f"j{number}", JobStatus.FINISHED, "x" * 250_000)
            store.create_dirty(result, None)
    command = [sys.executable, "-c", HUNGRY, str(stack)]
    done = subprocess.run(
        command, cwd=home, env={**os.environ, "JRS_BACKEND": url},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    refused(done, "memory")


def test_a_cleanup_of_a_replaced_leader(backend: Backend, other: Backend) -> None:
    """D8: a leader that is replaced between its look at the fence and its cleaning removes no
    record of a job."""
    backend.commit(Create(keys.ATTEMPTS + "j", encode(AttemptRecord("j"))))
    JobResultStore(backend).create_dirty(JobResult("j", JobStatus.FINISHED), None)
    with lead(backend) as leadership:
        old: Fence = leadership.fence
    with lead(other):
        before = contents(backend)
        held, backend.is_current = backend.is_current, lambda fence: True
        try:
            records = RecoveryRecords(backend)
            for clean in (JobCleanup(backend, [records]).run, records.clean_fenced):
                with pytest.raises(Fenced):
                    clean("j", old)
        finally:
            backend.is_current = held
        assert contents(backend) == before


def test_a_job_that_holds_itself() -> None:
    """D8: the reason for ending the attempt of a held job is the hold, and not a request."""
    held = decide(Facts(spec=Spec.READABLE, attempt=Attempt.RUNNING, stop=Stop.HELD))

    assert held.action is Action.SUSPEND
    assert "held" in held.reason
    assert "somebody" not in held.reason
