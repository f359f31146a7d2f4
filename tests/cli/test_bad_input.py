"""Bad input: one clear line on stderr, exit code 2, nothing changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.cli.commands import COMMANDS
from jrs.records import keys
from jrs.records.model import JobResult, JobStatus
from jrs.store.result_store import JobResultStore
from tests.cli.conftest import Jrs


def refused(done: subprocess.CompletedProcess[str], *says: str) -> None:
    """Assert that the program refused in one line that says all of `says`."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("jrs: ")
    for text in says:
        assert text in done.stderr


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobResultStore]:
    """The store as the programs see it, with one job that ended and one that was expired."""
    with FileBackend(tmp_path / "store") as backend:
        results = JobResultStore(backend)
        for job_id in ("ended", "expired"):
            results.create_dirty(JobResult(job_id, JobStatus.FINISHED, 1), None)
            results.mark_clean(job_id, None)
        results.delete("expired")
        yield results


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param(["--backend", "redis://h/0", "list"], ["unknown backend"], id="scheme"),
        pytest.param(["--backend", "nonsense", "list"], ["unknown backend"], id="no-url"),
        pytest.param(["--backend", "file:relative", "list"], ["file:///"], id="relative"),
        pytest.param(["--cluster", "a/b", "list"], ["cluster id"], id="cluster"),
        pytest.param(["submit", "a/b", "jobs_here:add"], ["'a/b'", "job id"], id="slash"),
        pytest.param(["submit", "a b", "jobs_here:add"], ["'a b'", "job id"], id="space"),
        pytest.param(["submit", "x" * 200, "jobs_here:add"], ["200 characters"], id="long"),
        pytest.param(["submit", "", "jobs_here:add"], ["''", "job id"], id="empty"),
        pytest.param(["submit", "j", "nowhere:f"], ["nowhere"], id="no-module"),
        pytest.param(["submit", "j", "./nowhere.py:f"], ["no file"], id="no-file"),
        pytest.param(
            ["submit", "j", "nowhere/gone:f"], ["no file nowhere/gone.py"], id="no-file-no-ending"
        ),
        pytest.param(
            ["submit", "j", "./jobs_here:add"], ["write ./jobs_here.py:add"], id="no-ending"
        ),
        pytest.param(["submit", "j", "jobs_here:gone"], ["'gone'"], id="no-function"),
        pytest.param(["submit", "j", "jobs_here:number"], ["not a function"], id="no-callable"),
        pytest.param(["submit", "j", "jobs_here"], ["package.module:function"], id="no-colon"),
        pytest.param(["submit", "j", "raises:f"], ["RuntimeError", "on import"], id="raises"),
        pytest.param(["submit", "j", "jobs_here:add", "--args", "{"], ["JSON"], id="args"),
        pytest.param(["submit", "j", "jobs_here:add", "--args", "[]"], ["object"], id="array"),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--args", '{"a": NaN}'], ["JSON", "nan"], id="nan"
        ),
        pytest.param(["submit", "j", "jobs_here:add", "--arg", "a"], ["name=value"], id="pair"),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--arg", "a=" + "x" * 100_000,
             "--arg", "b=" + "x" * 100_000, "--arg", "c=" + "x" * 100_000],
            ["too large", "location"], id="large",
        ),
        pytest.param(["submit", "j", "jobs_here:add", "--attempts", "0"], ["from 1 to"], id="0"),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--delay", "nan"], ["--delay", "90s"], id="delay"
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--snapshots-at-end", "failed=burn"],
            ["finished=keep"], id="at-end",
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--keep-snapshots", "0"], ["from 1 to"], id="keep"
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--secret", "PW=hunter2"],
            ["secret PW", "env:VARIABLE"], id="secret",
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--secret", "PW=file:relative"],
            ["secret PW", "absolute path"], id="secret-file",
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--secret", "hunter2"], ["equals sign"], id="no-name"
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--env", "JRS_BACKEND=x"], ["JRS_"], id="own-variable"
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--env", "a b=x"], ["'a b'"], id="variable"
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--env-from-file", "/nowhere"], ["/nowhere"],
            id="env-file",
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--properties-file", "jobs_here.py"],
            ["jobs_here.py", "spark."], id="properties",
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--conf", "executor.memory=1g"], ["spark."], id="conf"
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--packages", "delta"], ["group:artifact:version"],
            id="packages",
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--python", "./python"], ["python"], id="python"
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--tag", "x" * 129], ["not a tag"], id="tag"
        ),
        pytest.param(["submit", "j", "jobs_here:add", "--slots", "0"], ["--slots"], id="slots"),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--timeout", "soon"], ["--timeout", "12h"],
            id="job-timeout",
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--snapshot-max-age", "-1d"], ["7d"], id="max-age"
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--runner", "thread", "--env", "A=1"],
            ["thread", "env"], id="thread",
        ),
        pytest.param(["submit", "ended", "jobs_here:add"], ["has ended"], id="finished"),
        pytest.param(["submit", "expired", "jobs_here:add"], ["expired"], id="expired"),
        pytest.param(["cleanup", "force", "nobody"], ["no result"], id="mark-clean-unknown"),
        pytest.param(["cleanup", "force", "ended"], ["not dirty"], id="mark-clean-clean"),
        pytest.param(["cancel", "nobody"], ["no job"], id="cancel-unknown"),
        pytest.param(["cancel", "ended"], ["has FINISHED", "nothing to cancel"], id="cancel-ended"),
        pytest.param(["show", "nobody"], ["no job"], id="show-unknown"),
        pytest.param(["explain", "nobody"], ["no job"], id="explain-unknown"),
        pytest.param(["snapshot", "list", "nobody"], ["no job"], id="snapshots-unknown"),
        pytest.param(
            ["snapshot", "list", "nobody", "--json"], ["no job"], id="snapshots-unknown-json"
        ),
        pytest.param(["wait", "a/b"], ["job id"], id="wait-id"),
        pytest.param(["wait", "expired"], ["expired"], id="wait-expired"),
        pytest.param(["expire", "--older-than", "soon"], ["not a duration", "7d or a"], id="age"),
        pytest.param(["master", "--ttl", "0"], ["ttl"], id="ttl"),
        pytest.param(["master", "--resource", "jobs_here:add"], ["add"], id="resource"),
        pytest.param(["master", "--storage", "/proc/x"], ["/proc/x"], id="storage"),
        pytest.param(["master", "--name", "a/b"], ["master name"], id="name"),
        pytest.param(["master", "--storage", "ftp://h/x"], ["is not known", "s3://"], id="url"),
        pytest.param(["master", "--storage", "file://d/x"], ["file:///"], id="storage-host"),
        pytest.param(["master", "--storage", "s3://k:pw@b/x"], ["credentials"], id="url-password"),
        pytest.param(["doctor", "--storage", "s3://b?endpont=x"], ["endpont"], id="url-option"),
        pytest.param(["files", "j", "s", "--storage", "gs:///x"], ["BUCKET"], id="no-bucket"),
        pytest.param(["fsck", "--storage", "/nowhere"], ["/nowhere"], id="no-storage"),
        pytest.param(["wait", "ended", "--timeout", "nan"], ["timeout"], id="timeout-nan"),
        pytest.param(["wait", "ended", "--timeout", "-1"], ["timeout"], id="timeout"),
        pytest.param(["--backend", "memory://x", "list"], ["ends with its process"], id="memory"),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--arg", "c=1"], ["there is no argument", "'c'"],
            id="signature",
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--arg", "a=1", "--arg", "a=2"], ["twice"], id="twice"
        ),
        pytest.param(
            ["submit", "j", "jobs_here:add", "--args", '{"a": 1, "a": 2}'], ["'a' twice"], id="2"
        ),
        pytest.param(["submit", "j", "jobs_here:add", "--on-result", ""], ["command"], id="hook"),
        pytest.param(["list", "--cluster", ""], ["not a cluster id"], id="no-cluster-behind"),
        pytest.param(["list", "--backend", ""], ["--backend is empty"], id="no-backend-behind"),
        pytest.param(
            ["logs", "ended", "--storage", "/no"], ["'--storage'", "'/no'"], id="no-storage"
        ),
        pytest.param(["frobnicate"], ["frobnicate"], id="command"),
        pytest.param(["submit"], ["JOB_ID"], id="argument"),
    ],
)  # fmt: skip
def test_refused_in_one_line(
    jrs_here: Jrs, store: JobResultStore, tmp_path: Path, args: list[str], says: list[str]
) -> None:
    """What cannot be done is refused in one line, with exit code 2, and leaves no trace."""
    before = {
        key: value for key, value in contents(tmp_path / "store").items() if "leader" not in key
    }

    refused(jrs_here(*args), *says)

    after = {
        key: value for key, value in contents(tmp_path / "store").items() if "leader" not in key
    }
    assert before == after


def test_a_setting_without_a_form_for_the_system(jrs_here: Jrs, home: Path) -> None:
    """A null character, which a file can hold, is in no setting of a submission."""
    (home / "null.conf").write_text("spark.a x\0y")
    done = jrs_here("submit", "j", "jobs_here:add", "--properties-file", "null.conf")

    refused(done, "the value of spark.a has a null character")


def test_no_snapshots_of_a_job_that_there_is(jrs: Jrs, store: JobResultStore) -> None:
    """A job that has no snapshot is none that there is not: ended, expired, or submitted."""
    jrs("submit", "submitted", "jobs_here:add")

    for job_id in ("ended", "expired", "submitted"):
        done = jrs("snapshot", "list", job_id, "--json")
        assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_no_backend(jrs: Jrs) -> None:
    """A command that is not told where says how to tell it."""
    refused(jrs("list", JRS_BACKEND=""), "--backend", "JRS_BACKEND")


def test_a_wrong_storage_says_where_it_is_from(jrs_here: Jrs, home: Path) -> None:
    """The flag, the environment or the file."""
    refused(jrs_here("logs", "j", "--storage", "/no"), "for '--storage': ")
    refused(jrs_here("logs", "j", JRS_STORAGE="/no"), "for the environment variable JRS_STORAGE: ")


def test_a_wrong_storage_of_the_file(jrs_here: Jrs, home: Path) -> None:
    """It is named with its file."""
    (home / "jrs.toml").write_text('storage = "/no"')
    refused(jrs_here("logs", "j"), "for 'storage' in jrs.toml: ")


def test_running_job_is_a_duplicate(jrs: Jrs) -> None:
    """An id that was submitted and has not ended is refused."""
    assert jrs("submit", "j", "jobs_here:sleeps").returncode == 0

    refused(jrs("submit", "j", "jobs_here:sleeps"), "not ended")


def test_foreign_folder(jrs: Jrs, tmp_path: Path) -> None:
    """A folder that holds something else is refused and stays as it is."""
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").write_bytes(b"cat")

    refused(jrs("--backend", f"file://{folder}", "submit", "j", "jobs_here:add"), "cat.jpg")
    refused(jrs("--backend", f"file://{folder}", "list"), "cat.jpg")
    assert [p.name for p in folder.iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, ["OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"]),
        ({"OPENLINEAGE_URL": "not a url\x1b[31m"}, ["OpenLineage's configuration"]),
        ({"OPENLINEAGE_CONFIG": "no.yml"}, ["OPENLINEAGE_CONFIG"]),
        ({"OPENLINEAGE_CONFIG": "list.yml"}, ["OpenLineage"]),
    ],
)
def test_openlineage_that_is_not_configured(
    jrs: Jrs, home: Path, environment: dict[str, str], says: list[str]
) -> None:
    """A master does not start to export to nowhere."""
    (home / "list.yml").write_text("- transport\n")

    done = jrs("master", "--openlineage", HOME=str(home), **environment)
    refused(done, *says)
    assert "\x1b" not in done.stderr


def test_openlineage_that_is_not_installed(jrs: Jrs, home: Path) -> None:
    """The master says what to install."""
    (home / "openlineage").mkdir()
    (home / "openlineage" / "__init__.py").write_text("")

    done = jrs("master", "--openlineage", PYTHONPATH=str(home))
    refused(done, "openlineage-python", "pip install 'jrs[openlineage]'")


def test_a_file_for_a_folder(jrs: Jrs, tmp_path: Path) -> None:
    """A file where a folder is expected is refused."""
    (tmp_path / "file").write_text("")

    refused(jrs("--backend", f"file://{tmp_path}/file", "list"), "not a folder")


def test_reading_creates_nothing(jrs: Jrs, tmp_path: Path) -> None:
    """A reading command with a mistyped folder creates none."""
    for command in ("list", "masters", "fsck"):
        refused(jrs("--backend", f"file://{tmp_path}/typo", command), "no jrs cluster")
    assert not (tmp_path / "typo").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_no_permission(jrs: Jrs, store: JobResultStore, home: Path, tmp_path: Path) -> None:
    """A folder of another user is refused by name."""
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:-1]:
        if parent.name.startswith("pytest"):
            parent.chmod(0o755)
    done = subprocess.run(
        ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable,
         "-m", "jrs", "--backend", f"file://{tmp_path}/store", "list"],
        cwd="/", capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    if "can't open file" in done.stderr or "No module named" in done.stderr:
        pytest.skip("this interpreter cannot be read by others")

    refused(done, "no permission")


def test_newer_folder(jrs: Jrs, store: JobResultStore, tmp_path: Path) -> None:
    """A folder of a newer version is refused by name, never guessed at."""
    (tmp_path / "store" / "jrs.json").write_text(json.dumps({"format": "jrs", "version": 99}))

    refused(jrs("list"), "99", "upgrade")


def test_flipped_bit(jrs: Jrs, store: JobResultStore, tmp_path: Path) -> None:
    """A log with a flipped bit is refused until an operator accepts the loss."""
    log = next((tmp_path / "store").rglob("*.tail"))
    data = bytearray(log.read_bytes())
    data[data.index(b"FINISHED") + 3] ^= 1
    log.write_bytes(data)

    refused(jrs("list"), "damaged", "fsck --accept-damage")
    assert log.read_bytes() == bytes(data)

    checked = jrs("fsck")
    assert checked.returncode == 2
    assert "damaged" in checked.stdout
    accepted = jrs("fsck", "--accept-damage")
    assert "accepted the loss of" in accepted.stderr
    assert jrs("list").returncode == 0


def test_damaged_record_holds_one_job(jrs: Jrs, store: JobResultStore, tmp_path: Path) -> None:
    """A result that cannot be read is shown as held; the others are shown as ever."""
    from jrs.contract.operations import Create

    with FileBackend(tmp_path / "store") as backend:
        backend.commit(Create(keys.RESULTS + "broken", b"garbage"))

    listed = jrs("list")
    assert listed.returncode == 0
    assert "HELD" in listed.stdout
    assert "ended" in listed.stdout
    assert "hold" in jrs("explain", "broken").stdout
    assert jrs("fsck").returncode == 2


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_has_an_example(jrs_here: Jrs, command: str) -> None:
    """Every command explains itself, with an example."""
    done = jrs_here(command, "--help")

    assert done.returncode == 0
    assert "Example" in done.stdout


@pytest.mark.parametrize(("scheme", "package"), [("etcd", "etcd3"), ("zookeeper", "kazoo")])
def test_a_backend_whose_packages_are_missing(home: Path, scheme: str, package: str) -> None:
    """One line that says what to install."""
    # As if it were not installed: Python looks in the working folder first.
    (home / "sitecustomize.py").write_text(
        f"import sys; sys.modules[{package!r}] = None; "
        "import importlib.metadata as m; real = m.distribution\n"
        "def distribution(name):\n"
        f"    if name == {package!r}: raise m.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "m.distribution = distribution\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "jrs", "--backend", f"{scheme}://127.0.0.1:1", "list"],
        env={**os.environ, "PYTHONPATH": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert f"pip install 'jrs[{scheme}]'" in ended.stderr
