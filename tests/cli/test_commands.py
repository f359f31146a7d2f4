"""The commands at work, with a real master."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from jrs.contract.operations import Create
from jrs.records import keys
from jrs.store.opening import open_backend
from tests.cli.conftest import Jrs
from tests.support import until


def test_submit_wait_show(jrs: Jrs, master: subprocess.Popen[bytes]) -> None:
    """A submitted job runs, its payload is printed, and everything is known of it afterwards."""
    done = jrs("submit", "sum", "jobs_here:add", "--arg", "a=2", "--args", '{"b": 5}', "--wait")

    assert done.returncode == 0
    assert json.loads(done.stdout) == {"sum": 7}
    assert json.loads(jrs("wait", "sum").stdout) == {"sum": 7}
    shown = json.loads(jrs("show", "sum", "--json").stdout)
    assert shown["entry"]["result"]["status"] == "FINISHED"
    listed = json.loads(jrs("list", "--json").stdout)
    assert [view["job_id"] for view in listed] == ["sum"]


@pytest.mark.parametrize(
    ("function", "says"),
    [("boom", "no good"), ("nan", "not JSON"), ("huge", "too large")],
)
def test_failed_job(jrs: Jrs, master: subprocess.Popen[bytes], function: str, says: str) -> None:
    """A job that raises or returns what is no JSON ends FAILED, and waiting for it exits with 1."""
    done = jrs("submit", "bad", f"jobs_here:{function}", "--wait")

    assert done.returncode == 1
    assert says in done.stderr


def test_wait_times_out(jrs: Jrs) -> None:
    """Waiting gives up after the time it was given, with an exit code of its own."""
    jrs("submit", "j", "jobs_here:add")

    assert jrs("wait", "j", "--timeout", "0.1").returncode == 3


def test_existing(jrs: Jrs, master: subprocess.Popen[bytes]) -> None:
    """With --existing, submitting again returns the result there is."""
    jrs("submit", "sum", "jobs_here:add", "--wait")
    done = jrs("submit", "sum", "jobs_here:add", "--existing", "--wait")

    assert done.returncode == 0
    assert json.loads(done.stdout) == {"sum": 2}
    assert done.stderr == "sum was submitted before (FINISHED)\n"


def test_existing_that_failed(jrs: Jrs, master: subprocess.Popen[bytes]) -> None:
    """Who submits a job again is told that it has failed, and that it was another one."""
    jrs("submit", "bad", "jobs_here:boom", "--wait")
    done = jrs("submit", "bad", "jobs_here:add", "--existing", "--arg", "a=5")

    assert done.returncode == 0
    assert done.stderr == (
        "bad was submitted before (FAILED), with another entry point and other arguments; "
        "to run it again: jrs retry bad\n"
    )


def test_existing_that_is_another_call(jrs: Jrs) -> None:
    """It is said, without the arguments of the job that has the id."""
    jrs("submit", "j", "jobs_here:add", "--arg", "a=1")
    done = jrs("submit", "j", "jobs_here:add", "--existing", "--arg", "a=5")

    assert done.returncode == 0
    assert "j was submitted before" in done.stderr
    assert "other arguments" in done.stderr


def test_cancel(jrs: Jrs, master: subprocess.Popen[bytes]) -> None:
    """A running job can be canceled."""
    jrs("submit", "long", "jobs_here:sleeps")
    done = jrs("cancel", "long", "--wait", "--reason", "enough")

    assert done.returncode == 0
    assert "CANCELED" in done.stderr


def test_masters(jrs: Jrs, master: subprocess.Popen[bytes]) -> None:
    """The registry names the leader and its epoch."""
    until(lambda: "leads, epoch 1" in jrs("masters").stdout, "it leads")
    shown = json.loads(jrs("masters", "--json").stdout)

    assert shown["epoch"]["epoch"] == 1
    (info,) = shown["masters"]
    assert (info["pid"], info["role"]) == (master.pid, "leader")


def test_expire_leaves_a_tombstone(jrs: Jrs, master: subprocess.Popen[bytes]) -> None:
    """An expired result is gone, and its id can never be submitted again."""
    jrs("submit", "sum", "jobs_here:add", "--wait")
    expired: list[str] = []
    while not expired:  # Until its cleanup has ended.
        expired = json.loads(jrs("expire", "--older-than", "0s", "--json").stdout)

    assert expired == ["sum"]
    assert jrs("submit", "sum", "jobs_here:add").returncode == 2
    assert jrs("list", "--state", "expired").stdout.count("sum") == 1


@pytest.mark.parametrize("left", ["out", "e1/streams/sums/ck.rescaling"])
def test_fsck_names_left_overs(jrs: Jrs, tmp_path: Path, left: str) -> None:
    """What has no owner is named, whether whole or half made, and nothing of it is deleted."""
    jrs("submit", "sum", "jobs_here:add")
    orphan = tmp_path / "store" / "storage" / "default" / "ghost" / left
    orphan.mkdir(parents=True)
    done = jrs("fsck")

    assert done.returncode == 1
    assert "ghost" in done.stdout
    assert orphan.exists()


def test_fsck_names_what_came_back(
    jrs: Jrs, master: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """What a host that thaws late writes for a job that is clean is named; its output is not."""
    assert jrs("submit", "sum", "jobs_here:add", "--wait").returncode == 0
    folder = tmp_path / "store" / "storage" / "default" / "sum"
    until(lambda: jrs("fsck").returncode == 0, "the job is clean")
    (folder / "out" / "table").mkdir(parents=True)
    assert jrs("fsck").returncode == 0
    (folder / "e1" / "streams" / "sums" / "ck.rescaling").mkdir(parents=True)
    done = jrs("fsck")

    assert done.returncode == 1
    assert done.stdout.splitlines() == [f"{folder / 'e1'}: left over by a job that has ended"]


def test_fsck_names_records_without_a_job(jrs: Jrs, tmp_path: Path) -> None:
    """Whatever a job leaves in the map that outlived it is named; so is what cannot be read."""
    jrs("submit", "sum", "jobs_here:add")
    with open_backend((tmp_path / "store").as_uri()) as backend:
        for prefix in keys.WHILE_IT_RUNS:
            backend.commit(Create(f"{prefix}ghost", b"no record"))
    done = jrs("fsck")

    assert done.returncode == 2
    for prefix in keys.WHILE_IT_RUNS:
        assert f"{prefix}ghost: left over by a job that never was" in done.stdout
        assert done.stdout.count(f"{prefix}ghost") == 2, done.stdout


def test_the_policies_of_a_job(jrs: Jrs) -> None:
    """U19: what is said of restarts and snapshots when a job is submitted is what its spec says;
    ages have units."""
    jrs(
        "submit", "sum", "jobs_here:add", "--attempts", "5", "--snapshot-every", "60",
        "--keep-snapshots", "7", "--snapshot-max-age", "30d", "--snapshot-format", "cas",
        "--snapshots-at-end", "finished=keep", "--snapshots-at-end", "canceled=delete",
    )  # fmt: skip
    spec = json.loads(jrs("show", "sum", "--json").stdout)["spec"]

    assert spec["restart"]["attempts"] == 5
    assert spec["snapshots"] == {
        "every": 60.0, "keep": 7, "max_age": 2592000.0,
        "on_finished": "keep", "on_failed": "keep", "on_canceled": "delete", "format": "cas",
    }  # fmt: skip


def test_master_is_small(jrs: Jrs, master: subprocess.Popen[bytes]) -> None:
    """A master that has run a job holds no JVM and less than 60 MB."""
    jrs("submit", "sum", "jobs_here:add", "--wait")
    status = Path(f"/proc/{master.pid}/status").read_text()
    resident = int(status.partition("VmRSS:")[2].split()[0])

    assert resident < 60_000
    assert "java" not in Path(f"/proc/{master.pid}/cmdline").read_text()
