"""``jrs top``, ``serve`` and ``open``, as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Jrs


def test_top(jrs_here: Jrs) -> None:
    """Where it is no terminal, the overview is printed once: what waits, and why."""
    jrs_here("submit", "waits", "jobs_here:add")
    said = jrs_here("top")
    assert said.returncode == 0
    assert "no master has ever led" in said.stdout
    assert "waiting: 1" in said.stdout
    assert "held: 0" in said.stdout
    found = json.loads(jrs_here("top", "--json").stdout)
    assert [one["job_id"] for one in found["waiting"]] == ["waits"]
    assert found["cluster"]["leader"] is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "Missing option '--listen'"),
        (("--listen", "8080"), "not an address"),
        (("--listen", "0.0.0.0:0"), "can be reached by others"),
        (("--listen", "127.0.0.1:0", "--tls-cert", "x"), "both --tls-cert and --tls-key"),
        (("--listen", "127.0.0.1:0", "--token-file", "none"), "No such file"),
    ],
)
def test_what_cannot_be_served(jrs_here: Jrs, options: tuple[str, ...], says: str) -> None:
    """Each is refused in one line, before anything listens."""
    jrs_here("submit", "job", "jobs_here:add")
    said = jrs_here("serve", *options)
    assert said.returncode == 2
    assert says in said.stderr


def test_what_cannot_be_opened(jrs_here: Jrs, home: Path) -> None:
    tokens = home / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text("operate 0123456789abcdef\n")
    said = jrs_here("open", "http://127.0.0.1:1", "--token-file", "tokens")
    assert said.returncode == 2
    assert "does not answer as jrs serve does" in said.stderr
    assert "0123456789abcdef" not in said.stderr
