"""The image of deploy/Containerfile, built where no registry of images can be reached.

Its base is made by debootstrap, under the name that the Containerfile has for it. pip trusts the
authorities there that it trusts here, so that it reaches PyPI from a build as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.found import KIT, ROOT

BASE = "debian:bookworm-slim"
IMAGE = "jrs-test"
_AUTHORITIES = "/etc/authorities.pem"
_TIMEOUT = 1500.0


class Docker:
    """The command `docker` with one engine."""

    def __init__(self, host: str) -> None:
        self._environment = {**os.environ, "DOCKER_HOST": host, "DOCKER_BUILDKIT": "0"}

    def __call__(self, *arguments: str | Path, check: bool = True) -> str:
        """Return what a command prints."""
        ended = self.popen(arguments, stdout=subprocess.PIPE)
        said = ended.communicate(timeout=_TIMEOUT)[0]
        assert not check or ended.returncode == 0, f"docker {arguments[0]}: {said[-4000:]}"
        return said

    def popen(self, arguments: Sequence[str | Path], stdout: int) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            ["docker", *arguments], env=self._environment, text=True,
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def load_base(self, root: Path) -> None:
        """Make an image of a folder, under the name of the base."""
        packed = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
        with packed:
            subprocess.run(
                ["docker", "import", "-", BASE], env=self._environment, stdin=packed.stdout,
                check=True, timeout=_TIMEOUT, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        assert packed.returncode == 0

    def build(self) -> str:
        """Build the image; return what was printed."""
        return self(
            "build", "--network=host", "--file", KIT / "Containerfile", "--tag", IMAGE, ROOT
        )

    @contextmanager
    def container(self, name: str, *arguments: str) -> Iterator[None]:
        """Run a container meanwhile."""
        self("run", "--detach", "--name", name, *arguments)
        try:
            yield
        finally:
            self("rm", "--force", name, check=False)


def make_root(folder: Path) -> None:
    """Make a small Debian in a folder; JRS_TEST_DEBIAN names one that there is already."""
    made = os.environ.get("JRS_TEST_DEBIAN")
    if made:
        subprocess.run(["cp", "-a", made, folder], check=True, timeout=_TIMEOUT)
    else:
        subprocess.run(
            ["debootstrap", "--variant=minbase", "bookworm", folder],
            check=True, timeout=_TIMEOUT, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    trusted = os.environ.get("PIP_CERT")
    if trusted:
        shutil.copyfile(trusted, folder / _AUTHORITIES.removeprefix("/"))
        (folder / "etc" / "pip.conf").write_text(f"[global]\ncert = {_AUTHORITIES}\n")
