"""The folder of an attempt's temporary files on a local disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jrs.contract.errors import CannotStartHere
from jrs.recovery.attempt import scratch

ATTEMPT = """
import sys
from jrs.recovery.attempt import scratch
print(scratch.make(sys.argv[1]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    return tmp_path / f"jrs-{os.getuid()}"


def test_c8_a_dead_attempts_folder_is_removed_and_a_living_ones_stays(place: Path) -> None:
    """C8: also if its watchdog is dead. A lock tells, which other containers see."""
    with subprocess.Popen(
        [sys.executable, "-c", ATTEMPT, "living"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as living:  # fmt: skip
        assert living.stdout is not None
        assert living.stdout.readline().strip() == str(place / "living")
        (place / "dead").mkdir()
        (place / "dead" / "spilled").touch()

        assert scratch.make("mine") == scratch.make("mine") == place / "mine"
        assert sorted(os.listdir(place)) == ["living", "mine"]
        living.kill()

    scratch.make("mine")
    assert os.listdir(place) == ["mine"]
    scratch.remove("mine")
    assert os.listdir(place) == []


def test_c8_a_place_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C8: it is the host's fault, and the job may start on another one."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path / "file"))

    with pytest.raises(CannotStartHere, match=r"JRS_SCRATCH: .* cannot be created: Not a"):
        scratch.make("mine")
    monkeypatch.delenv(scratch.VARIABLE)
    assert scratch.make("mine") is None
