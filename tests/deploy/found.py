"""The tools that check the kit: a test says what to install where one is missing."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.fixtures import missing

ROOT = Path(__file__).parents[2]
KIT = ROOT / "deploy"
JRS = Path(sys.executable).parent / "jrs"
_TIMEOUT = 120.0


def tool(name: str, package: str) -> str:
    """Return the path of a program; without it the test is skipped, and fails in CI."""
    near_python = Path(sys.executable).parent / name
    found = str(near_python) if near_python.exists() else shutil.which(name)
    if found is None:
        missing(ServerMissing(f"no '{name}' on the PATH: {package}"))
    return found


def output(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """Return what a command prints; fail with it if the command fails."""
    ended = subprocess.run(
        command, cwd=folder, text=True, timeout=_TIMEOUT, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert ended.returncode == 0, f"{command[0]}: {ended.stdout}"
    return ended.stdout


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program meanwhile, with nothing but PATH and this environment; end it by SIGTERM."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment},
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_TIMEOUT)
        finally:
            process.kill()


def status(url: str, context: ssl.SSLContext | None = None) -> int:
    """Return the status with which a URL answers; 0 while nothing listens there."""
    try:
        with urllib.request.urlopen(url, timeout=10, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def counted(address: str, query: str) -> int:
    """Return how many series a Prometheus has for a query."""
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        said = json.load(answer)
    assert said["status"] == "success", said
    return len(said["data"]["result"])
