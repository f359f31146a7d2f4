"""The program that writes the next base of a log, in its own process.

python -m jrs.backends.file.base_writer FOLDER NICENESS
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from jrs.contract.errors import JrsError

from .compaction import Compaction
from .replica import NEVER, Replica


def write_next(folder: Path) -> None:
    """Write the next base of the log in `folder`, if its newest segment is sealed."""
    replica = Replica(folder, seal_at=NEVER, compaction=Compaction(folder, in_process=True))
    start = replica.start
    try:
        while replica.start == start and not replica.step():
            pass
    finally:
        replica.close()


if __name__ == "__main__":
    os.nice(int(sys.argv[2]))
    try:
        write_next(Path(sys.argv[1]))
    except (JrsError, OSError) as error:
        sys.exit(str(error))
