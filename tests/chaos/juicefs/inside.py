"""In a mount namespace of its own: a filesystem, two hosts that have mounted it, and one trial.

    python -m tests.chaos.juicefs.inside FOLDER

`FOLDER` has the trial as ``trial.json``; the verdict is put next to it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from jrs.testing.servers.errors import ServerMissing
from tests.chaos.nfs.between_clients import play
from tests.chaos.nfs.trial import EXPORT, LOGS, MOUNTS
from tests.juicefs import UNCACHED, Filesystem, filesystem


def client(jobs: Filesystem, number: int, options: str, *program: str) -> subprocess.Popen[bytes]:
    """Start a program on a host of its own, whose files are below `MOUNTS[number]`."""
    host = jobs.host(f"client{number}", MOUNTS[number], *options.split())
    return subprocess.Popen(
        host.command("env", f"PYTHONPATH={Path.cwd()}", sys.executable, "-m", *program)
    )


def run(folder: Path, jobs: Filesystem) -> dict[str, Any]:
    LOGS.mkdir()
    jobs.mount(EXPORT, *UNCACHED)
    return play(folder / "trial.json", partial(client, jobs))


def main(folder: Path) -> int:
    for where in ("/mnt", "/run"):
        subprocess.run(["mount", "-t", "tmpfs", "none", where], check=True)
    made = folder / "juicefs"
    made.mkdir()
    try:
        with filesystem(made) as jobs:
            found = run(folder, jobs)
    except ServerMissing as error:
        print(error, file=sys.stderr)
        return 2
    (folder / "verdict.json").write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
