"""What the doctor says of real mounts of JuiceFS."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from jrs.store.opening import open_backend
from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.fixtures import missing
from tests.juicefs import Filesystem, Host, filesystem

pytestmark = pytest.mark.soak


@pytest.fixture
def jobs() -> Iterator[Filesystem]:
    # Not in pytest's folder: the path of a socket may have 107 bytes.
    with TemporaryDirectory(prefix="jrs-juicefs-") as made:
        Path(made).chmod(0o755)  # For another user.
        try:
            with filesystem(Path(made)) as found:
                yield found
        except ServerMissing as error:
            missing(error)


def doctor(host: Host, url: str) -> str:
    """Return what ``jrs doctor`` says of the storage of a host."""
    arguments = ("doctor", "--ttl", "60", "--backend", url, "--storage", str(host.at / "files"))
    done = subprocess.run(
        host.command(sys.executable, "-m", "jrs", *arguments),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_the_options_of_a_mount(jobs: Filesystem, tmp_path: Path) -> None:
    """C1: those of a mount that is right, and each that is not, as JuiceFS itself tells them."""
    url, at = (tmp_path / "store").as_uri(), jobs.folder / "jobs"
    open_backend(url).close()
    right = doctor(jobs.host("right", at, "--attr-cache=60", "--prefix-internal"), url)
    assert f"{at}/files, on fuse.juicefs\n" in right
    for number, (option, more) in enumerate(
        [
            ("--writeback", ()),
            ("--open-cache", ("5s",)),
            ("--readdir-cache", ()),
            ("--negative-entry-cache", ("1s",)),
            ("-o", ("writeback_cache",)),
        ]
    ):
        host = jobs.host(f"wrong-{number}", at, option, *more)
        name = f"{option} writeback_cache" if option == "-o" else option
        said = doctor(host, url)
        assert f"it is on fuse.juicefs with {name}, where" in said, said
        assert f"mount it without {name} on every host" in said


def test_a_mount_of_another_user(jobs: Filesystem) -> None:
    """C1: it tells its options to the user who mounted it, and to root."""
    at = jobs.folder / "jobs"
    host = jobs.host("one", at)
    look = f"import pathlib as p, jrs.host.filesystems as m; m.check_storage(p.Path({str(at)!r}))"
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs")
    said = subprocess.run(
        host.command(*nobody, sys.executable, "-c", look),
        capture_output=True, text=True, timeout=120, check=False,
    ).stderr  # fmt: skip
    assert f"{at}/.config, which has the options of the mount, cannot be read" in said, said
    assert "Permission denied" in said
    assert "mount the whole filesystem there, as the user that runs the masters" in said
