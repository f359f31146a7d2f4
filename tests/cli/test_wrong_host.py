"""U2: masters on hosts that lack something, as their operators meet them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import until

from .conftest import Jrs

JOBS = """
def quick(job):
    return "ran"

def on_java(job):
    from jrs.recovery.spark.configuration import require_java

    require_java()  # As `job.spark` does.
    return "ran on Java"
"""

Start = Callable[..., None]


@pytest.fixture
def start(tmp_path: Path, url: str) -> Iterator[Start]:
    """Start masters with or without the module of the jobs, and with or without Java."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "deployed.py").write_text(JOBS)
    masters: list[subprocess.Popen[bytes]] = []

    def start_one(name: str, *, module: bool, java: bool) -> None:
        paths = [os.environ.get("PYTHONPATH", ""), *([str(tmp_path / "modules")] if module else [])]
        home = os.environ if java else {**os.environ, "JAVA_HOME": "/nowhere"}
        command = [sys.executable, "-m", "jrs", "--backend", url, "master", "--ttl", "5"]
        masters.append(
            subprocess.Popen(
                [*command, "--name", name],
                cwd=tmp_path,
                env={**home, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                stdout=subprocess.DEVNULL,
            )
        )

    yield start_one
    for master in masters:
        master.terminate()
    for master in masters:
        master.wait(60)


def test_u2_a_job_runs_where_it_can(start: Start, jrs: Jrs, tmp_path: Path) -> None:
    """U2: of two masters one lacks Java and one the module; each job is FINISHED on the one that
    can. One that needs both is held with both reasons, and FINISHED once a host has both."""
    start("no-java", module=True, java=False)
    start("no-module", module=False, java=True)
    module, file = "deployed", tmp_path / "modules" / "deployed.py"
    jrs("submit", "needs-module", f"{module}:quick", "--no-check")
    jrs("submit", "needs-java", f"{file}:on_java", "--no-check")

    assert jrs("wait", "needs-module", "--timeout", 60).stdout == '"ran"\n'
    assert jrs("wait", "needs-java", "--timeout", 60).stdout == '"ran on Java"\n'

    jrs("submit", "needs-both", f"{module}:on_java", "--no-check")

    def both_said() -> str:
        said = jrs("explain", "needs-both").stdout
        return said if "no-java on " in said and "no-module on " in said else ""

    said = until(both_said, "both masters have tried it")
    assert "No module named 'deployed'" in said
    assert "JAVA_HOME (/nowhere) holds no bin/java" in said
    assert "no master could start it so far" in jrs("list").stdout
    waited = jrs("wait", "needs-both", "--timeout", 4)
    assert "'needs-both': held: no master could start it so far: " in waited.stderr

    start("complete", module=True, java=True)
    assert jrs("wait", "needs-both", "--timeout", 60).stdout == '"ran on Java"\n'
