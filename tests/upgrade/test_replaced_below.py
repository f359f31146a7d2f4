"""Another version of jrs is installed in place of the one that the leader was started from.

What a master starts afterwards is of that version, and the master itself is not.
"""

from __future__ import annotations

import array
import fcntl
import shutil
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, JobSpec, JobStatus
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import MasterProcess, Masters
from jrs.testing.processes import children, command_lines
from tests.older_versions import OlderVersion
from tests.support import BOUND

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "tests" / "chaos" / "jobs.py"


class Installed:
    """The folder that all masters of a host are started from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._replaced = 0

    def install(self, version: Path) -> None:
        """Put a version in the place of the one that is there, if any."""
        new = self.folder.with_name("new")
        new.mkdir()
        for name in ("jrs", "recovery", "backends"):
            shutil.copytree(version / name, new / name, symlinks=True)
        if self.folder.exists():
            self._replaced += 1
            self.folder.rename(self.folder.with_name(f"replaced-{self._replaced}"))
        new.rename(self.folder)

    def start(self, masters: Masters, name: str) -> MasterProcess:
        prefix = ["env", "-C", str(self.folder.parent), f"PYTHONPATH={self.folder}"]
        return masters.start(name, prefix=prefix)


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path / "opt")


@pytest.fixture
def masters(
    tmp_path: Path, installed: Installed, request: pytest.FixtureRequest
) -> Iterator[Masters]:
    url = (tmp_path / "store").as_uri()
    if "rolling" in request.fixturenames:  # It makes the cluster, in its format, and runs nothing.
        older: OlderVersion = request.getfixturevalue("rolling")
        for command in (["submit", "first", f"{JOBS}:stamp", "--no-check"], ["cancel", "first"]):
            done = older.jrs(url, "default", *command)
            assert done.returncode == 0, done.stderr
    with Masters(url, storage=tmp_path / "jobs") as made:
        yield made


def submit(masters: Masters) -> None:
    spec = JobSpec("job", f"{JOBS}:stamp", {"path": str(masters_folder(masters) / "job")})
    JobCatalog(masters.backend).submit(spec)


def masters_folder(masters: Masters) -> Path:
    return Path(masters.url.removeprefix("file://")).parent


def has_died(masters: Masters) -> bool:
    return any(event.kind == "died" for event in masters.events)


def leads(masters: Masters, name: str) -> None:
    masters.event(lambda event: event.kind == "leading" and event.master == name, f"{name} leads")


def finishes(masters: Masters) -> None:
    (masters_folder(masters) / "job.stop").touch()
    result = JobResultStore(masters.backend).wait("job", BOUND)
    assert result.status is JobStatus.FINISHED, result.failure
    assert not has_died(masters)


def obstacles(masters: Masters) -> list[str]:
    stored = masters.backend.get(keys.ATTEMPTS + "job")
    found = stored and decode(AttemptRecord, stored.value, stored.key)
    return [one.master for one in found.obstacles] if found else []


def has_read_its_launch(master: MasterProcess) -> bool:
    """Return whether a watchdog has emptied the pipe that its master of 0.1 has written to."""
    started = command_lines(children(master.process.pid))
    watchdogs = [pid for pid, line in started.items() if "jrs.recovery.attempt.watchdog" in line]
    left = array.array("i", [1])
    with suppress(OSError):  # It has ended.
        for pid in watchdogs:
            with open(f"/proc/{pid}/fd/0", "rb", buffering=0) as pipe:
                fcntl.ioctl(pipe, termios.FIONREAD, left)
    return left[0] == 0


@pytest.mark.parametrize("rolling", [3], indirect=True)
def test_an_older_leader(masters: Masters, installed: Installed, rolling: OlderVersion) -> None:
    """A master of 0.1 starts an attempt of this version: the attempt runs nothing and is no death,
    and the next leader runs the job."""
    installed.install(rolling.folder)
    older = installed.start(masters, "m1")
    leads(masters, "m1")
    installed.install(ROOT)
    submit(masters)
    masters.until(lambda: has_died(masters) or has_read_its_launch(older), "an attempt is started")
    installed.start(masters, "m2")
    older.stop()
    leads(masters, "m2")
    finishes(masters)


def test_a_later_version(masters: Masters, installed: Installed) -> None:
    """This version leads; a later one, whose launches have one more field, is installed. It refuses
    the launch, and a master that was started from it runs the job."""
    later = installed.folder.with_name("later")
    Installed(later).install(ROOT)
    launch = later / "recovery" / "attempt" / "launch.py"
    given = launch.read_text()
    assert "    log_limit: int\n" in given
    launch.write_text(given.replace("    log_limit: int\n", "    log_limit: int\n    new: str\n"))
    launch.write_text(
        launch.read_text().replace("mark=context.mark,", "mark=context.mark, new='',")
    )

    installed.install(ROOT)
    installed.start(masters, "m1")
    leads(masters, "m1")
    installed.install(later)
    submit(masters)
    masters.until(lambda: has_died(masters) or obstacles(masters) == ["m1"], "m1 cannot start it")
    installed.start(masters, "m2")
    leads(masters, "m2")
    finishes(masters)


@pytest.mark.parametrize("rolling", [3], indirect=True)
def test_going_back(masters: Masters, installed: Installed, rolling: OlderVersion) -> None:
    """This version leads, and 0.1 is installed again: it does not know how this one starts an
    attempt, and a master that was started from it runs the job."""
    installed.install(ROOT)
    installed.start(masters, "m1")
    leads(masters, "m1")
    installed.install(rolling.folder)
    submit(masters)
    masters.until(lambda: obstacles(masters) == ["m1"], "m1 cannot start it")
    installed.start(masters, "m2")
    leads(masters, "m2")
    finishes(masters)
