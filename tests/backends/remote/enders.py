"""What a guardian under test ends: notes in a file, so that the test sees what it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jrs.backends.remote.guardian import Ender
from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable


def ender(config: dict[str, Any]) -> Ender:
    notes = Path(config["notes"])
    failures = config.get("failures", 0)
    with notes.open("a") as file:
        file.write("ready\n")

    def end(secret: bytes, deadline: Deadline) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise Unavailable("not now")
        with notes.open("a") as file:
            file.write(f"ended {secret!r}\n")

    return end
