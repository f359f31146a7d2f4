"""What `systemd-run` does for the command `jrs` of the kit, where no systemd runs: a program in a
folder, with no environment but what it is told to have. The users of the kit are not here."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def main() -> None:
    """Run the program in the place of this one."""
    options = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--quiet", "--collect", "--wait", "--pipe"):
        options.add_argument(flag, action="store_true", required=True)
    for name in ("--unit", "--description", "--uid", "--gid", "--working-directory"):
        options.add_argument(name, required=True)
    for name in ("--setenv", "--property"):
        options.add_argument(name, action="append", default=[])
    options.add_argument("command", nargs=argparse.REMAINDER)
    given = options.parse_args()
    assert (given.uid, given.gid) == ("jrs", "jrs")
    assert given.description == "A command of jrs"  # The journal has it, not the arguments.
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH")}
    for one in given.property:
        name, _, value = one.partition("=")
        file = Path(value.removeprefix("-"))
        if name == "EnvironmentFile" and file.exists():
            lines = file.read_text().splitlines()
            environment |= dict(line.split("=", 1) for line in lines if line[:1] not in ("", "#"))
    environment |= dict(one.split("=", 1) for one in given.setenv)
    os.chdir(given.working_directory)
    words = [word.replace("$$", "$") for word in given.command]
    os.execvpe(words[0], words, environment)


if __name__ == "__main__":
    main()
