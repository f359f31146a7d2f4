"""The reaper: a small process that ends what a chaos run has started, however the run itself ends.

It waits for the end of a pipe that the run holds. Then the run is over, or was killed, and the
reaper kills (-9) all processes with the run's mark, stopped ones included, and unmounts its disk.

    python -m jrs.testing.chaos.reaper MARK DISK < pipe
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from jrs.host import helper_process
from jrs.host.fork import forget_in_children
from jrs.testing.chaos import marks


class Reaper:
    """The reaper of one run.

    Args:
        mark: of all processes of the run.
        disk: where the run may mount a filesystem.
    """

    def __init__(self, mark: str, disk: Path) -> None:
        ears, self._mouth = os.pipe2(os.O_CLOEXEC)
        environment = {name: value for name, value in os.environ.items() if name != marks.MARK}
        self._process = subprocess.Popen(
            helper_process.command(__name__, mark, str(disk)),
            stdin=ears,
            stdout=subprocess.DEVNULL,
            env={**environment, "PYTHONPATH": helper_process.search_path()},
            start_new_session=True,
        )
        os.close(ears)
        self._closed = False
        forget_in_children(self)

    def close(self) -> None:
        """Have it end what is left, and wait for it. Idempotent."""
        if not self._closed:
            self._closed = True
            os.close(self._mouth)
            self._process.wait()

    def forget(self) -> Iterable[int]:
        """Release the pipe in a child, which must not hold it open for the run."""
        held = () if self._closed else (self._mouth,)
        self._closed = True
        return held


def main() -> None:
    """Wait for the end of the run; see the module."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Meant for the run, which then ends.
    _, mark, disk = sys.argv
    while os.read(sys.stdin.fileno(), 1):
        pass
    marks.end(mark)
    if os.path.ismount(disk):
        subprocess.run(["umount", "-l", disk], check=False, timeout=30)


if __name__ == "__main__":
    main()
