"""Exit codes: a program that reads 2 may rely on it that nothing was changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

import jrs as face
from jrs.cli import jobs
from jrs.client.client import Client
from jrs.contract.errors import OutcomeUnknown, Unavailable
from tests.cli.conftest import Jrs

SUBMIT = ("submit", "sum", "jobs_here:add", "--wait")


def fails(error: Exception) -> object:
    def call(*_: object, **__: object) -> NoReturn:
        raise error

    return call


def test_an_unknown_outcome_is_no_refusal(jrs_here: Jrs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write may have happened."""
    monkeypatch.setattr(Client, "submit_spec", fails(OutcomeUnknown("the connection broke")))
    failed = jrs_here(*SUBMIT)

    assert (failed.returncode, failed.stderr) == (4, "jrs: the connection broke\n")


def test_a_backend_that_is_away(jrs_here: Jrs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same error is a refusal before the change, and none behind it."""
    with monkeypatch.context() as patch:
        patch.setattr(Client, "submit_spec", fails(Unavailable("etcd does not answer")))
        before = jrs_here(*SUBMIT)
    monkeypatch.setattr(jobs, "wait_for", fails(Unavailable("etcd does not answer")))
    behind = jrs_here(*SUBMIT)

    assert (before.returncode, behind.returncode) == (2, 4)
    assert behind.stderr == "submitted sum\njrs: etcd does not answer\n"


def test_an_expiry_that_breaks_off(jrs_here: Jrs, url: str) -> None:
    """It says how many results are gone, and that it is not done."""
    with face.connect(url):
        pass

    def expiring(*_: object) -> object:
        yield "a"
        raise Unavailable("etcd does not answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(face.JobResultStore, "expiring", expiring)
        failed = jrs_here("expire", "--older-than", "1d")

    assert (failed.returncode, failed.stdout) == (4, "expired 1 result\n")


def test_a_stderr_that_is_full(url: str, home: Path) -> None:
    """The job is submitted, whether or not that can be said."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jrs", "--backend", url, "submit", "sum", "jobs_here:add"],
            cwd=home,
            stderr=full,
            timeout=60,
        )

    assert done.returncode == 4
    with face.connect(url) as client:
        assert [view.job_id for view in client.views()] == ["sum"]


def test_an_interrupt_while_modules_are_loaded(tmp_path: Path) -> None:
    """It is told in one line, as any other."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "list"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (130, "jrs: interrupted\n")
