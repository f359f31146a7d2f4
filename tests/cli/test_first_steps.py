"""What a newcomer meets: nothing there yet, a misspelt argument, a job that failed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import jrs as jrs_package
from jrs.records.model import Failure, JobResult, JobStatus
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from tests.cli.conftest import Jrs
from tests.support import until


@pytest.fixture
def results(url: str) -> Iterator[JobResultStore]:
    """The store of a program that uses nothing else of jrs, and records no times."""
    with open_backend(url) as backend:
        yield JobResultStore(backend)


def test_a_check_changes_nothing(jrs_here: Jrs, tmp_path: Path) -> None:
    """Of a store that does not exist, the doctor says so, and creates it only on request."""
    looked = jrs_here("doctor", "--ttl", "60")

    assert (looked.returncode, looked.stderr) == (0, "")
    assert "does not exist yet" in looked.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "work"]

    created = jrs_here("doctor", "--ttl", "60", "--create")
    assert (created.returncode, created.stdout.splitlines()[-1]) == (0, "fit")
    assert "does not exist" not in created.stdout
    assert (tmp_path / "store" / "clusters" / "default").is_dir()

    other = jrs_here("--cluster", "other", "doctor")
    assert "cluster 'other'" in other.stdout
    assert not (tmp_path / "store" / "clusters" / "other").exists()


def test_a_store_that_could_not_be_created(jrs_here: Jrs, tmp_path: Path) -> None:
    """What is in the way of the store is a problem that the doctor names."""
    (tmp_path / "mount").symlink_to("nowhere")
    looked = jrs_here("--backend", f"file://{tmp_path}/mount/store", "doctor")

    assert looked.returncode == 1
    assert f"does not exist yet: {tmp_path}/mount is not a folder" in looked.stdout
    assert looked.stdout.splitlines()[-1] == "not fit: 1 of 1 need attention"


@pytest.mark.parametrize(
    ("entry", "arguments", "says"),
    [
        ("add", ["c=1"], "jobs_here:add: there is no argument 'c'"),
        ("load", [], "jobs_here:load: the argument 'day' is missing"),
        (
            "load",
            ["dya=1"],
            "the argument 'day' is missing; there is no argument 'dya'; did you mean 'day'?",
        ),
        ("load", ["day=1", "job=2"], "there is no argument 'job'"),
        ("options", ["day=1", "job=2"], "multiple values for argument 'job'"),
        ("lacks_the_job", [], "cannot be called with the job"),
    ],
)
def test_arguments_that_do_not_fit(
    jrs_here: Jrs, home: Path, entry: str, arguments: list[str], says: str
) -> None:
    """The missing argument is named, and the unknown one."""
    with (home / "jobs_here.py").open("a") as jobs:
        jobs.write("\ndef load(job, day): pass\ndef options(job, **more): pass\n")
        jobs.write("def lacks_the_job(): pass\n")
    given = [part for one in arguments for part in ("--arg", one)]
    done = jrs_here("submit", "j", f"jobs_here:{entry}", *given)

    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "(job, )" not in done.stderr


def test_the_last_words_of_a_process(jrs_here: Jrs, results: JobResultStore) -> None:
    """Of a process that died, the reason and its last line are printed."""
    detail = "Traceback (most recent call last):\n  File …\nMemoryError: no room\n"
    failure = Failure("exit", "its process exited with 1", detail)
    results.create_dirty(JobResult("died", JobStatus.FAILED, failure=failure), None)
    done = jrs_here("wait", "died")

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "jrs: job 'died' ended FAILED: its process exited with 1",
        "  | MemoryError: no room",
        "  the whole failure: jrs show died; its logs: jrs logs died",
    ]


def test_a_result_without_times(jrs_here: Jrs, results: JobResultStore) -> None:
    """What is not known is not shown as a dash."""
    results.create_dirty(JobResult("report", JobStatus.FINISHED, 1), None)
    shown = jrs_here("show", "report").stdout

    assert "started:" not in shown
    assert "finished:    in epoch 0\n" in shown


def test_no_snapshots(jrs_here: Jrs, results: JobResultStore) -> None:
    done = jrs_here("snapshot", "list")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no snapshots\n")


def test_a_snapshot_for_a_retry_alone(jrs: Jrs, master: subprocess.Popen[bytes]) -> None:
    """The end of a job that has no files is counted and not listed; the retry finds it."""
    assert jrs("submit", "bad", "jobs_here:boom", "--wait").returncode == 1
    until(lambda: "bad" in jrs("list", "--state", "clean").stdout, "it is clean")
    listed = jrs("snapshot", "list")

    assert listed.stdout == ""
    assert "1 snapshot without files is kept for jrs retry" in listed.stderr
    assert "system, at the end" in jrs("snapshot", "list", "--all").stdout
    assert "system, at the end" in jrs("snapshot", "list", "bad", "--all").stdout
    assert jrs("retry", "bad", "--json").returncode == 0


def test_the_submitting_program_runs_twice(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As the README has it."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    program = readme.partition("# submit.py")[2].partition("\n")[2].partition("```")[0]
    for _ in range(2):
        exec(program.replace("file:///var/lib/jrs", url), {})

    assert capsys.readouterr().out == "nightly-2026-11-20 CREATED\n" * 2
    with jrs_package.connect(url) as client:
        assert [job.id for job in client.jobs()] == ["nightly-2026-11-20"]


def test_the_demo_needs_its_extra(jrs_here: Jrs) -> None:
    (line,) = [one for one in jrs_here("--help").stdout.splitlines() if "jrs demo" in one]

    assert "jrs[demo]" in line
