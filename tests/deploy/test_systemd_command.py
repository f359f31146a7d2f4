"""The command `jrs` of the kit, over a stand-in for systemd: its unit lives apart from
systemd-run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.deploy.units import FOLDER
from tests.support import BOUND, until

SYSTEMD_RUN = """
import pathlib, signal, subprocess, sys, time
pathlib.Path("FOLDER", "asked").touch()
while pathlib.Path("FOLDER", "busy").exists():
    time.sleep(0.02)
unit = next(word for word in sys.argv if word.startswith("--unit=")).partition("=")[2]
command = sys.argv[sys.argv.index("--pipe") + 1:]
begin = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # As systemd does.
with subprocess.Popen(command, start_new_session=True, preexec_fn=begin) as running:
    place = pathlib.Path("FOLDER", unit)
    place.write_text(str(running.pid))
    status = running.wait()
    place.unlink()
    sys.exit(status)
"""
SYSTEMCTL = """
import os, pathlib, signal, sys
number = dict(kill=lambda: signal.Signals["SIG" + sys.argv[2].partition("=")[2]],
              stop=lambda: signal.SIGTERM)[sys.argv[1]]()
os.kill(int(pathlib.Path("FOLDER", sys.argv[-1]).read_text()), number)
"""
JRS = """
import pathlib, signal, sys, time
pathlib.Path("FOLDER", "input").write_text(sys.stdin.read())
try:
    while True:
        time.sleep(60)
except KeyboardInterrupt:
    sys.exit(4)
"""


ENDS_WITH_A_SIGNAL = """#!/bin/sh
kill -TERM $PPID
exit 4
"""
"""A systemd-run whose caller is signaled in the moment in which it ends."""


def _heeds_interrupts() -> None:
    """Set in a child what a terminal does; tests that run in the background ignore the signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The command, with its environment."""
    for name, code in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL), ("program", JRS)):
        made = tmp_path / name
        made.write_text(f"#!{sys.executable}{code}".replace("FOLDER", str(tmp_path)))
        made.chmod(0o755)
    text = (FOLDER / "jrs").read_text().replace("/opt/jrs/bin/jrs", str(tmp_path / "program"))
    (tmp_path / "jrs").write_text(text)
    return ["env", f"PATH={tmp_path}:/usr/bin:/bin", "sh", str(tmp_path / "jrs"), "wait", "job"]


@pytest.mark.parametrize("to_group", [False, True])
def test_a_command_that_is_interrupted_ends_its_unit(
    command: list[str], tmp_path: Path, to_group: bool
) -> None:
    """It ran on, and might still change something; Ctrl-C signals systemd-run as well. The exit
    code says whether it has."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, process_group=0, preexec_fn=_heeds_interrupts
    ) as running:
        try:
            assert running.stdin is not None
            running.stdin.write(b"asked")
            running.stdin.close()
            until((tmp_path / "input").exists, "it has read its input")
            until(lambda: (tmp_path / "input").read_text() == "asked", "it has read all")
            if to_group:
                os.killpg(running.pid, signal.SIGINT)
            else:
                running.send_signal(signal.SIGINT)
            assert running.wait(BOUND) == 4
        finally:
            running.kill()
            for unit in tmp_path.glob("jrs-command-*"):
                with suppress(ProcessLookupError):
                    os.kill(int(unit.read_text()), signal.SIGKILL)


def test_a_command_that_is_interrupted_before_its_unit_starts(
    command: list[str], tmp_path: Path
) -> None:
    """Its unit started all the same once systemd had time for it, and the signal was lost."""
    (tmp_path / "busy").touch()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_heeds_interrupts
    ) as running:
        try:
            until((tmp_path / "asked").exists, "systemd is asked for the unit")
            running.send_signal(signal.SIGINT)
            assert running.wait(BOUND) == 4
            assert not (tmp_path / "input").exists()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


@pytest.mark.parametrize("shell", [["dash"], ["bash", "--posix"]])
def test_a_signal_in_the_moment_in_which_a_command_ends(
    command: list[str], tmp_path: Path, shell: list[str]
) -> None:
    """The exit code stays, whatever shell is `sh`: bash answered 127, which is that of a command
    that does not exist."""
    (tmp_path / "systemd-run").write_text(ENDS_WITH_A_SIGNAL)
    (tmp_path / "systemctl").write_text("#!/bin/sh\n")
    env, path, _, *words = command
    codes = {subprocess.run([env, path, *shell, *words], check=False, stdin=subprocess.DEVNULL)
             .returncode for _ in range(20)}  # fmt: skip

    assert codes == {4}
