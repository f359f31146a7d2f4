"""The program of an attempt whose preparation starts no JVM: it notes its process, and does what
the plan says.

    python -m tests.recovery.attempt.warm_program PIPE < socket
"""

from __future__ import annotations

import os
import sys
import time

from jrs.recovery import attempt_main
from jrs.recovery.attempt.warm_plan import WarmPlan
from jrs.recovery.spark.engine import PySparkEngine

PROGRAM = "tests.recovery.attempt.warm_program"
NOTES = "spark.sql.notes"
"""The key of a plan that names the file for the number of the process."""
THEN = "spark.sql.then"
"""The key that says what it does then."""


class Engine(PySparkEngine):
    def prepare(self, plan: WarmPlan) -> None:
        if NOTES in plan.conf:
            with open(plan.conf[NOTES], "a", encoding="utf-8") as file:
                file.write(f"{os.getpid()}\n")
        print("it prepares itself", file=sys.stderr, flush=True)
        match plan.conf.get(THEN):
            case "fail":
                sys.exit("there is no Java")
            case "hang":
                time.sleep(3600.0)


if __name__ == "__main__":
    attempt_main.main(int(sys.argv.pop()), Engine())
