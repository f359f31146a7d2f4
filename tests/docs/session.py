"""A page that is a session of a terminal: runs its commands, and compares what they print.

The page is Markdown. Its blocks of Python are saved as files. Its console blocks are one session
of bash, in one folder, with real masters. What differs from run to run (times, ids, the host's
name) is replaced by a word before it is compared, and progress is left out.

    python -m tests.docs.session docs/operations.md    # writes what was printed into the page
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "~~ end of command {} ~~"
_WAITS = re.compile(r"^jrs (wait\b|.* --wait\b)")
_UNTIL_CLEAN = "while jrs list --state dirty 2> /dev/null | grep -q .; do sleep 0.1; done\n"
"""What follows a command that waits for a result, unseen: a reader, who types, is slower than
cleanup."""
_LONGEST = 900.0
"""Seconds for a whole session."""
PLACE = "/srv/etl"
"""What the page calls the folder of its session."""
NEW = "/srv/new"
"""What the page calls a second environment. It lacks what PYTHONPATH puts into the first one, such
as another version of PySpark."""
HOST = "etl1"
"""What the page calls this host."""

_PROGRESS = re.compile(r"^(jrs: job '[^']+':|  \w+: .* committed).*\n?", re.MULTILINE)
"""What a command that waits says meanwhile."""
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:s|min|h)\b(?: \d\d (?:s|min)\b)?"), "DURATION"),
    # On a busy host, an attempt may end before its process has said who it is.
    (re.compile(r", pid \d+"), ""),
    (re.compile(rf"\b({HOST} +)\d+"), r"\1 N"),
    (re.compile(r"\b[0-9a-f]{8,64}\b"), "HASH"),
    (re.compile(r"\bepoch \d+"), "epoch N"),
    (re.compile(r"\b[\d.]+ (B|KiB|MiB)\b"), "SIZE"),
    (re.compile(r" +"), " "),
    (re.compile(r"-{3,}|─+"), "---"),
)


@attrs.frozen
class Command:
    """A command of a page, and what the page says that it prints."""

    text: str
    output: str


def commands_of(page: str) -> list[Command]:
    """Return the commands of the console blocks of a page, in order."""
    found = []
    for kind, text in _BLOCK.findall(page):
        if kind == "console":
            found += list(_commands_in(text))
    return found


def _commands_in(text: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        at = next(n for n, line in enumerate(lines) if not line.endswith("\\"))
        yield Command("\n".join(lines[: at + 1]), "\n".join(lines[at + 1 :]))


def files_of(page: str) -> dict[str, str]:
    """Return the blocks of Python, by the name of the file in their first line."""
    python = [text for kind, text in _BLOCK.findall(page) if kind == "python"]
    return {re.match(r"# (\S+\.py)", text)[1]: text for text in python}  # type: ignore[index]


def run(page: str, folder: Path) -> list[Command]:
    """Run the page's commands in `folder`; return them with what they have printed."""
    (folder / "work").mkdir()
    programs = environment(folder / "bin", os.environ.get("PYTHONPATH", ""))
    environment(folder / "new" / "bin")
    for name, text in files_of(page).items():
        (folder / "work" / name).write_text(_here(text, folder))
    commands = commands_of(page)
    script = "trap 'kill -9 $(jobs -p) 2> /dev/null' EXIT\n"
    for number, command in enumerate(commands):
        script += f"{command.text}\necho; echo '{_END.format(number)}'\n"
        if _WAITS.match(command.text):
            script += _UNTIL_CLEAN
    said = shell(_here(script, folder), folder / "work", programs, _LONGEST)
    outputs = []
    for number, command in enumerate(commands):
        output, end, said = said.partition(f"\n{_END.format(number)}\n")
        assert end, f"{command.text} did not end: {output}"
        outputs.append(Command(command.text, _shown(output, folder)))
    return outputs


def shell(script: str, folder: Path, programs: Path, timeout: float) -> str:
    """Run a script of bash in `folder`, with `programs` first on its path; return what it prints.

    Args:
        timeout: seconds. After them, the script and all that it has started is killed.

    Raises:
        AssertionError: the script did not end in time.
    """
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "110"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as bash:
        try:
            return bash.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired as late:
            last = (late.stdout or b"").decode(errors="replace")[-2000:]
            raise AssertionError(f"the script did not end; it said last: {last}") from None
        finally:
            if bash.poll() is None:
                os.killpg(bash.pid, signal.SIGKILL)


def environment(programs: Path, first: str = "") -> Path:
    """Make the programs `jrs` and `python` in a new folder, and return it.

    Args:
        first: folders of modules that come before this checkout, as in PYTHONPATH.
    """
    programs.mkdir(parents=True)
    modules = os.pathsep.join(filter(None, [first, str(ROOT)]))
    for name, starts in {"jrs": "-m jrs", "python": ""}.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nPYTHONPATH={modules} exec {sys.executable} {starts} "$@"\n')
        program.chmod(0o755)
    return programs


def _here(text: str, folder: Path) -> str:
    """Return a text with places in `folder` for those of the reader."""
    return text.replace(NEW, str(folder / "new")).replace(PLACE, str(folder / "work"))


def _shown(output: str, folder: Path) -> str:
    """Return an output as the page shows it: with the reader's places and host."""
    places = {str(folder / "new"): NEW, str(folder / "work"): PLACE, socket.gethostname(): HOST}
    text = renamed(output, places)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def renamed(text: str, names: dict[str, str]) -> str:
    """Return a text with other names, whose tables keep their columns."""

    def one(match: re.Match[str]) -> str:
        word, gap = match.groups()
        new = word
        for name, instead in names.items():
            new = new.replace(name, instead)
        wide = len(gap) > 1  # The next column.
        return new + (" " * max(2, len(gap) + len(word) - len(new)) if wide else gap)

    return re.sub(r"(\S+)( *)", one, text)


def comparable(output: str) -> list[str]:
    """Return the lines of an output without what differs from run to run."""
    output = _PROGRESS.sub("", output)
    for varies, word in _VARIES:
        output = varies.sub(word, output)
    return [line.strip() for line in output.splitlines() if line.strip()]


def with_outputs(page: str, printed: list[Command]) -> str:
    """Return the page with what its commands have printed."""
    left = iter(printed)

    def replaced(match: re.Match[str]) -> str:
        if match[1] != "console":
            return match[0]
        shown = ""
        for _ in _commands_in(match[2]):
            command = next(left)
            shown += f"$ {command.text}\n" + (f"{command.output}\n" if command.output else "")
        return f"```console\n{shown}```"

    return _BLOCK.sub(replaced, page)


def main() -> None:
    page = Path(sys.argv[1])
    text = page.read_text()
    with tempfile.TemporaryDirectory() as folder:
        page.write_text(with_outputs(text, run(text, Path(folder))))


if __name__ == "__main__":
    main()
