"""Running the command line as its users do: as a program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from jrs import cli
from jrs.cli import main
from tests.forks import Forks

JOBS = """
import sys, time

def add(job, a=1, b=1):
    return {"sum": a + b}

def boom(job):
    raise ValueError("no good")

def nan(job):
    return float("nan")

def huge(job):
    return "x" * 300_000

def sleeps(job):
    time.sleep(600)

number = 7
"""


class Jrs(Protocol):
    """Runs ``jrs …`` and returns the finished program."""

    def __call__(self, *args: object, **env: str) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a module of jobs, where the programs run."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "jobs_here.py").write_text(JOBS)
    (tmp_path / "work" / "raises.py").write_text("raise RuntimeError('on import')\n")
    return tmp_path / "work"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    commands = (f"jrs.cli.{path.stem}" for path in Path(cli.__file__).parent.glob("[!_]*.py"))
    with Forks("jrs.backends.file.backend", "rich.console", "rich.table", *commands) as forks:
        yield forks


@pytest.fixture
def jrs(forks: Forks, home: Path, url: str) -> Jrs:
    def run(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
        program = "import runpy; runpy.run_module('jrs', run_name='__main__', alter_sys=True)"
        environment = {**os.environ, "JRS_BACKEND": url, **env}
        return forks.run(program, *args, folder=home, environment=environment)

    return run


@pytest.fixture
def jrs_here(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Jrs:
    """Runs ``jrs …`` in this process, in a tenth of the time: for what is only refused or read."""

    def run(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(home)
        for name, value in {"JRS_BACKEND": url, **env}.items():
            monkeypatch.setenv(name, value)
        command = ["jrs", *map(str, args)]
        monkeypatch.setattr(sys, "argv", command)
        monkeypatch.setattr(sys, "path", [*sys.path])
        for module in ("jobs_here", "raises"):  # Another test's, from another folder.
            monkeypatch.delitem(sys.modules, module, raising=False)
        capfd.readouterr()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)  # A master sets its own before it may be refused.
        return subprocess.CompletedProcess(command, int(ended.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture
def master(home: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real master for the time of the test."""
    process = subprocess.Popen(
        [sys.executable, "-m", "jrs", "--backend", url, "master", "--ttl", "5"],
        cwd=home,
        stdout=subprocess.DEVNULL,
    )
    yield process
    process.terminate()
    process.wait(60)
