"""The program that runs a job's `OnResult`; it dies with the master that started it.

python -m jrs.recovery.run_hook MASTER_PID call ENTRY_POINT < result
python -m jrs.recovery.run_hook MASTER_PID run COMMAND [ARG…] < result
"""

from __future__ import annotations

import json
import os
import shutil
import sys

from .attempt import entry_point
from .processes import prctl

PROGRAM = "jrs.recovery.run_hook"
"""The module that ``python -m`` runs."""


def main() -> None:
    master, kind, *words = sys.argv[1:]
    prctl.die_with(int(master))
    if kind == "run":
        try:
            # As the master has found it when it checked the command.
            os.execv(shutil.which(words[0]) or words[0], words)
        except OSError as error:
            sys.exit(f"{words[0]}: {error.strerror}")
    function = entry_point.load(words[0])
    function(json.load(sys.stdin))


if __name__ == "__main__":
    main()
