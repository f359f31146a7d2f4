"""Whatever is stored, what is printed neither commands a terminal nor forges a line."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jrs.cli import commands, main, prepare
from jrs.records.model import JobSpec
from jrs.records.policies import RestartPolicy
from jrs.recovery.rules.events import Event
from jrs.recovery.spark import class_data
from jrs.store import jobs
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from tests.cli.hostile import EVIL, TOLD, make
from tests.support import until

ENDED = ["failed", "done", "vast", "long"]
JOBS = [*ENDED, "longer", "dying", "held", "drained", "suspending", "snapped", "huge", "torn"]
KEY = "spec.key"
COMMANDS: list[list[str]] = [
    ["list"],
    ["list", "--json"],
    ["list", "--state", "dirty"],
    ["list", "--after", TOLD],
    *(["show", job_id, *more] for job_id in JOBS for more in ([], ["--json"])),
    *(["explain", job_id, *more] for job_id in JOBS for more in ([], ["--json"])),
    *(["history", job_id, *more] for job_id in JOBS for more in ([], ["--json"])),
    ["history"],
    ["history", "--json"],
    ["history", "--after", TOLD],
    ["history", "--follow", "--after", TOLD],
    ["history", "--after", f"1~{TOLD}~x"],
    ["history", "--after", "9~failed~000000000000.000000"],
    ["explain", "failed", "--epoch", "1"],
    ["explain", "failed", "--at", TOLD],
    *(["wait", job_id, "--timeout", "0"] for job_id in JOBS),
    *(["wait", job_id, "--timeout", "0", "--json"] for job_id in ENDED),
    *(
        [command, TOLD]
        for command in ("show", "explain", "history", "wait", "cancel", "suspend", "resume")
    ),
    ["masters"],
    ["masters", "--json"],
    ["fsck"],
    ["fsck", "--json"],
    ["fsck", "--storage", TOLD],
    ["cleanup", "dry-run", "failed"],
    ["cleanup", "dry-run", "failed", "--json"],
    ["cleanup", "retry", "failed"],
    ["cleanup", "force", "failed"],
    ["cleanup", "force", "vast"],
    ["expire", "--older-than", "1s"],
    ["expire", "--older-than", "1s", "--json"],
    ["expire", "--older-than", TOLD],
    ["cancel", "held", "--because", TOLD],
    ["suspend", "huge", "--because", TOLD, "--no-wait"],
    ["suspend", "suspending", "--timeout", "0"],
    ["drain", "drained", "--timeout", "0"],
    ["suspend", "held"],
    ["stop", "held", "--no-wait"],
    ["resume", "held"],
    ["resume", "suspending"],
    ["submit", TOLD, TOLD],
    ["submit", "j", TOLD],
    ["submit", "j", TOLD, "--no-check", "--arg", f"{TOLD}={TOLD}"],
    ["submit", "j", "m:f", "--args", TOLD],
    ["submit", "j", "m:f", "--arg", TOLD],
    ["submit", "done", "m:f", "--no-check", "--existing", "--wait"],
    ["submit", "failed", "m:f", "--no-check", "--existing", "--wait"],
    ["upgrade", "held", "--entry", TOLD],
    ["upgrade", "held", "--entry", TOLD, "--no-check", "--no-wait"],
    ["submit", "j", "m:f", "--no-check", "--spec-key", TOLD],
    ["sign", TOLD, "--spec-key", KEY],
    ["sign", "dying", "--spec-key", KEY],
    ["sign", "torn", "--spec-key", KEY],
    ["sign", "dying", "--spec-key", TOLD],
    ["rescale", "dying", "--partitions", "2", "--no-wait"],
    ["fork", "dying", "--as", TOLD],
    ["fork", "dying", "--as", "new"],
    ["snapshot", "list"],
    ["snapshot", "list", "--json"],
    ["snapshot", "create", "dying", "--name", TOLD],
    ["snapshot", "create", "dying", "--batch", TOLD],
    ["snapshot", "show", "snapped", "1"],
    ["snapshot", "show", "snapped", TOLD],
    ["snapshot", "verify", "snapped", "1"],
    ["snapshot", "verify", "snapped"],
    ["snapshot", "move", "snapped", "1", "/nowhere/else"],
    ["snapshot", "export", "snapped", "1", TOLD],
    ["snapshot", "restore", "snapped"],
    ["snapshot", "restore", "--finish", TOLD],
    ["snapshot", "fork", "snapped", "1", "--as", "new"],
    ["snapshot", "delete", "snapped", "1"],
    ["retry", "failed", "--timeout", "0"],
    ["retry", "failed", "--as", TOLD],
    ["retry", "done", "--from-stage", TOLD],
    ["snapshot", "convert", "snapped", "1", "--to", "full"],
    ["gc", "--dry-run"],
    ["gc", "--storage", TOLD],
    ["expire", TOLD],
    ["logs", TOLD],
    ["files", "done", TOLD],
    ["files", TOLD, "stage"],
    ["files", "done", "stage", "--since", TOLD],
    ["logs", "failed"],
    ["pause", "--because", TOLD],
    ["unpause"],
    ["switchover", "--to", TOLD],
    ["storage"],
    ["storage", "--adopt", "--storage", TOLD],
    ["config"],
    ["init", "--file", f"/nowhere/{TOLD}"],
    ["list", "--tag", TOLD],
    ["list", "--since", TOLD],
    ["submit", "j", "m:f", "--no-check", "--conf", TOLD],
    ["submit", "j", "m:f", "--no-check", "--secret", TOLD],
    ["submit", "j", "m:f", "--no-check", "--tag", TOLD],
    ["cluster-format"],
    ["cluster-format", "--json"],
    ["cluster-format", "--raise"],
    ["doctor"],
    ["doctor", "--json"],
    ["doctor", "--conf", TOLD],
    ["chaos", "run", TOLD, "--folder", "/"],
    ["chaos", "run", f"m:{TOLD}", "--seconds", "0", "--copies", "1", "--masters", "1"],
    ["chaos", "run", "m:f", "--nemesis", TOLD],
    ["chaos", "check", TOLD],
    ["chaos", "check", "/", "--check", TOLD],
    ["migrate", "--from", TOLD, "--to", TOLD],
    ["migrate", "--from", f"file:///nowhere/{TOLD}", "--to", "file:///nowhere/else"],
    ["migrate", "--from", "memory://x", "--to", f"etcd://{TOLD}", "--abandon"],
    ["migrate", "--from", TOLD, "--to", TOLD, "--abandon", "--copy-lost"],
    ["top", "--once"],
    ["top", "--json"],
    ["top", TOLD],
    *(["top", job_id, *more] for job_id in JOBS for more in (["--once"], ["--json"])),
    ["serve", "--listen", TOLD],
    ["serve", "--log-format", TOLD],
    ["serve", "--listen", f"unix:/nowhere/{TOLD}"],
    ["serve", "--listen", "127.0.0.1:0", "--token-file", f"/nowhere/{TOLD}"],
    ["serve", "--listen", "127.0.0.1:0", "--tls-cert", TOLD],
    ["open", TOLD, "--token-file", KEY],
    ["open", "--token-file", TOLD],
    ["master", "--listen", TOLD],
    ["master", "--log-format", TOLD],
    ["master", "--name", TOLD],
    ["master", "--resource", TOLD],
    ["master", "--storage", f"/proc/{TOLD}"],
    ["master", "--spec-key", TOLD],
    ["--backend", f"etcd://{TOLD}", "list"],
    ["--backend", f"file:///nowhere/{TOLD}", "list"],
    ["--cluster", TOLD, "list"],
    [TOLD],
]


def harmless(printed: bytes) -> None:
    """Assert that what was printed is lines of text alone, none of them forged, no traceback."""
    text = printed.decode()  # No lone surrogate either: it would not be UTF-8.
    assert not re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", text), text
    assert not re.findall(r"(?m)^\s{0,8}FORGED", text), text
    assert "Traceback (most recent call last)" not in text


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "store"
    make(folder)
    return folder


@pytest.fixture
def cluster(original: Path, tmp_path: Path) -> str:
    shutil.copytree(original, tmp_path / "store")
    return f"file://{tmp_path}/store"


def test_every_command_is_tried() -> None:
    """X1: a command that is added is added here too. The demo prints what it has made itself."""
    tried = {word for command in COMMANDS for word in command}
    assert set(commands.COMMANDS) - tried == {"demo", "prepare"}


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: ascii(" ".join(args))[1:60])
def test_what_a_command_prints(
    cluster: str,
    args: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> None:
    """X1, B3, D8: no command prints a control character, a forged line or a traceback, whatever is
    stored: lone surrogates, numbers of 5,000 digits, exceptions of 600 KB, 4,000 stages."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / KEY).write_text("0123456789abcdef" * 4)
    (tmp_path / KEY).chmod(0o600)
    monkeypatch.setenv("JRS_BACKEND", cluster)
    monkeypatch.setattr(sys, "argv", ["jrs", *args])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit):
        main()
    out, err = capfdbinary.readouterr()
    assert out or err
    harmless(out + err)


@pytest.mark.parametrize(
    ("args", "encoding"),
    [(["list"], "ascii"), (["show", "failed"], "utf-8"), (["show", TOLD], "utf-8")],
)
def test_what_a_process_prints(cluster: str, args: list[str], encoding: str) -> None:
    """X1: nor does a real process, whatever the encoding of its terminal is."""
    done = subprocess.run(
        [sys.executable, "-m", "jrs", *args],
        env={**os.environ, "JRS_BACKEND": cluster, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode in (0, 1, 2)
    harmless(done.stdout + done.stderr)


def test_what_prepare_prints(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """X1: nor does `jrs prepare`, wherever Spark is installed."""
    monkeypatch.setattr(class_data, "make", lambda: EVIL)
    prepare.prepare_command.main([], standalone_mode=False)
    harmless(capfdbinary.readouterr().out)


BOOM = f"""
EVIL = {EVIL!a}

def boom(job):
    raise ValueError(EVIL)

class Stubborn(__import__("jrs").Resource):
    name = "stubborn"
    def clean(self, job_id):
        raise OSError(EVIL)

def stubborn():
    return Stubborn()
"""


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_a_master_logs(
    url: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_format: str
) -> None:
    """X1: a job, a resource or a hold forges no line of the master's log."""
    # Older versions submit such an entry point.
    monkeypatch.setattr(jobs, "check_entry_point", lambda *_: None)
    (home / "hostile_jobs.py").write_text(BOOM)
    log = tmp_path / "log"
    command = [sys.executable, "-m", "jrs", "--backend", url, "master", "--ttl", "5"]
    with open_backend(url) as backend, log.open("wb") as file:
        restart = RestartPolicy(on_exception=True, delay=0.0, attempts=2)
        for spec in (JobSpec("bad", "hostile_jobs:boom", restart=restart), JobSpec("no", EVIL)):
            JobCatalog(backend).submit(spec)
        master = subprocess.Popen(
            [*command, "--resource", "hostile_jobs:stubborn", "--log-format", log_format],
            cwd=home, stdout=file, stderr=file,
        )  # fmt: skip
        try:
            for job_id in ("bad", "no"):
                assert JobResultStore(backend).wait(job_id, 60.0).failure
                until(lambda: log.read_bytes().count(b"stubborn is left"), f"{job_id} is left")
        finally:
            master.send_signal(signal.SIGTERM)
            master.wait(60)
    harmless(log.read_bytes())
    start = (
        rb"\{.*\}" if log_format == "json" else rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  epoch \d+  .*"
    )
    for line in log.read_bytes().splitlines():
        assert re.fullmatch(start, line), line


def test_what_events_hold() -> None:
    """X1: a message is one harmless line for every listener, and of bounded size."""
    event: Any = Event("died", "j", EVIL * 10_000, 1, 1.0)

    harmless(event.message.encode())
    assert len(event.message) < 20_000
