"""`jrs serve` as a process, next to real masters: failovers, frozen backends, other tools."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jrs import connect
from jrs.client import plain
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import JobSpec
from jrs.records.signing import SpecKey
from jrs.store.opening import open_backend
from jrs.testing.masters import Masters
from jrs.testing.servers import EtcdServer
from tests.recovery.support import job
from tests.sidecar.conftest import _PORTS, OPERATE, READ, Served, write_tokens
from tests.support import BOUND, in_long_form, until

Start = Callable[..., Served]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start `jrs serve` for a cluster."""
    with ExitStack() as stack:

        def start_one(url: str, cluster: str = "default", *options: str) -> Served:
            tokens = write_tokens(tmp_path / "tokens", f"operate {OPERATE}\nread {READ}\n")
            port = _PORTS.take()
            command = [sys.executable, "-m", "jrs", "--backend", url, "--cluster", cluster, "serve"]
            command += ["--listen", f"127.0.0.1:{port}", "--token-file", str(tokens)]
            command += ["--storage", str(tmp_path), *options]
            process = stack.enter_context(
                subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=tmp_path)
            )
            stack.callback(process.terminate)
            client = stack.enter_context(connect(url, cluster=cluster))
            served = Served(client, port, tokens)
            until(lambda: _status(served, "/livez") == 200, "it answers")
            return served

        yield start_one


def _status(served: Served, path: str) -> int:
    try:
        return served.get(path).status
    except ConnectionError:
        return 0


HOOKS = """
import schemathesis

@schemathesis.hook
def before_call(context, case, kwargs):
    wait = (case.query or {}).get("wait")
    if isinstance(wait, (int, float)) and wait > 0.1:
        case.query["wait"] = 0.1
"""
"""No request of schemathesis waits for long: most wait for what never comes."""


def test_signed_specs(start: Start, tmp_path: Path) -> None:
    """With the key, what is submitted or changed over HTTP is signed, as masters want it."""
    file, other, url = tmp_path / "spec.key", tmp_path / "other.key", (tmp_path / "s").as_uri()
    for one, text in (file, "open-sesame-"), (other, "close-again-"):
        one.write_text(text * 4)
        one.chmod(0o600)
    with open_backend(url) as backend:
        served = start(url, "default", "--spec-key", str(file), "--spec-key", str(other))
        new = {"id": "new", "entry": "m:f"}
        assert served.post("/v1/jobs", new).status == 201
        key, change = SpecKey.read(file), {"entry": "m:g"}
        assert served.post("/v1/jobs/new/upgrade", change).status == 200
        stored = backend.get(keys.JOBS + "new")
        assert stored is not None
        assert key.has_signed(stored.value, "")
        assert decode(JobSpec, stored.value, stored.key).entry_point == "m:g"


@pytest.mark.parametrize("kind", ["file", "etcd"])
def test_results_after_a_failover(
    kind: str, request: pytest.FixtureRequest, start: Start, tmp_path: Path
) -> None:
    """The API tells who leads before and after a kill -9 of the leader, and has the result that the
    next leader brought about; a stream sees it."""
    etcd = kind == "etcd"
    url = request.getfixturevalue("etcd_server").url() if etcd else (tmp_path / "s").as_uri()
    cluster = uuid.uuid4().hex[:8]
    with Masters(url, cluster=cluster, storage=tmp_path) as masters:
        masters.start("m1")
        masters.start("m2")
        served = start(url, cluster)
        until(lambda: served.get("/v1/cluster").json["leader"], "one leads")
        before = served.get("/v1/cluster").json["leader"]
        until(lambda: served.get("/readyz").status == 200, "it is ready")
        hold = tmp_path / "hold"
        hold.touch()
        calls = tmp_path / "calls"
        answer = served.post("/v1/jobs", {
            "id": "two", "entry": job("two_stages"),
            "arguments": {"calls": str(calls), "hold": str(hold)},
        })  # fmt: skip
        assert answer.status == 201
        stream = served.events("/v1/jobs/two/events")
        stream.until(lambda name, data: name == "job" and data["stages"] == 1)

        masters.leader().kill()
        # The killed master's attempt may live for another moment.
        stream.until(lambda name, data: name == "job" and data["attempt"] == 2)
        hold.unlink()
        after = stream.until(lambda name, data: name == "job" and data["status"] == "FINISHED")
        stream.close()

        assert after["attempt"] == 2
        result = served.get("/v1/jobs/two/result?wait=60").json
        assert result["payload"]["skipped"] == [True, False]
        assert [one["epoch"] for one in result["attempts"]] == [
            before["leading"], result["epoch"],
        ]  # fmt: skip
        leads = served.get(f"/v1/cluster/leader?after={before['leading']}&wait=60").json
        assert (leads["leading"], leads["name"] != before["name"]) == (result["epoch"], True)
        then = served.get(f"/v1/jobs/two/explain-past?epoch={before['leading']}")
        assert (then.status, then.json["epoch"]) == (200, before["leading"])
        past = served.client.job("two").explain_past(epoch=before["leading"])
        assert then.json == plain.of_past("two", past)
        assert served.get(f"/v1/jobs/two/explain-past?at={past.entry.at!r}").json == then.json
        now = datetime.now(UTC).strftime("%H:%M:%S.%f")
        newest = served.get(f"/v1/jobs/two/explain-past?at={now}")
        assert newest.json["epoch"] == leads["leading"]
        assert served.get("/v1/jobs/two/explain-past?at=12h").status == 404
        assert served.get("/v1/jobs/two/explain-past?at=noon").status == 422
        page = served.get("/jobs/two", Accept="text/html").text
        assert page.count('class="failover"') == 1


def test_a_frozen_backend(start: Start, etcd_server: EtcdServer) -> None:
    """While etcd is frozen the server is alive and not ready, and what it is asked is unavailable;
    afterwards it answers again."""
    url = etcd_server.url()
    served = start(f"{url}{'&' if '?' in url else '?'}timeout=2", uuid.uuid4().hex[:8])
    member = next(iter(etcd_server))
    member.pause()
    try:
        assert served.get("/livez").status == 200
        until(lambda: served.get("/readyz").status == 503, "it is not ready")
        answer = served.get("/v1/jobs")
        assert answer.status == 503
        assert answer.headers["retry-after"]
        assert served.get("/", Accept="text/html").status == 503
        assert served.get("/livez").status == 200
    finally:
        member.resume()
    until(lambda: served.get("/v1/jobs").status == 200, "it answers again")


def test_it_ends_by_a_signal(tmp_path: Path) -> None:
    """Without an address it listens at a socket of its user alone, and says where, in JSON if it is
    asked; SIGTERM ends it with status 0, and what it cannot use is one line."""
    url = (tmp_path / "s").as_uri()
    connect(url).close()
    path = tmp_path / "run" / "default.sock"
    command = [sys.executable, "-m", "jrs", "--backend", url, "serve", "--log-format", "json"]
    environment = {**os.environ, "RUNTIME_DIRECTORY": str(path.parent)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        until(path.exists, "it listens")
        second = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment
        )
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert "another process listens there" in second.stderr
        modes = [stat.S_IMODE(one.stat().st_mode) for one in (path.parent, path)]
        assert modes == [0o700, 0o600]
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(BOUND)
        connection.sock.connect(str(path))
        connection.request("POST", "/v1/cluster/unpause", b"{}")
        assert connection.getresponse().status == 200
        connection.close()
        process.terminate()
        assert process.wait(BOUND) == 0
        assert process.stderr is not None
        lines = [json.loads(line) for line in process.stderr]
    assert not path.exists()
    assert [one["kind"] for one in lines] == ["serving", "request"]
    assert lines[0]["message"] == f"serving cluster default at unix:{path}"
    asked = {"caller": "local", "path": "/v1/cluster/unpause", "status": 200, "level": "info"}
    assert asked.items() <= lines[1].items()


def test_it_ends_when_the_folder_is_replaced(tmp_path: Path) -> None:
    """One that stayed answered nothing but 503; what supervises it starts it again."""
    folder, path = tmp_path / "s", tmp_path / "api.sock"
    connect(folder.as_uri()).close()
    command = [sys.executable, "-m", "jrs", "--backend", folder.as_uri(), "serve"]
    command += ["--listen", f"unix:{path}"]
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        until(path.exists, "it listens")
        folder.rename(tmp_path / "old")
        assert process.wait(BOUND) == 2
        assert process.stderr is not None
        said = [line for line in process.stderr if " was moved or removed while " in line]
    assert [line.partition("/")[0] for line in said] == ["jrs: "]


def test_what_schemathesis_finds(start: Start, tmp_path: Path) -> None:
    """Requests made from the description, right and wrong ones, are never answered by a failure of
    the server, and as the description says."""
    url = (tmp_path / "s").as_uri()
    connect(url).close()
    served = start(url)
    examples = in_long_form(220, 4)  # 10,000 requests, or 170.
    hooks = tmp_path / "hooks.py"
    hooks.write_text(HOOKS)
    program = Path(sys.executable).with_name("schemathesis")
    found = subprocess.run(
        [
            program, "run", f"http://127.0.0.1:{served.port}/v1/openapi.json",
            "-H", f"Authorization: Bearer {OPERATE}", "--max-examples", str(examples),
            "--checks", "not_a_server_error,content_type_conformance,response_schema_conformance",
            "--phases", "fuzzing", "--exclude-path-regex", "events|/log$", "--no-color",
            "--request-timeout", "60", "--seed", "1",
        ],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "SCHEMATHESIS_HOOKS": str(hooks)},
    )  # fmt: skip
    print("\n".join(line for line in found.stdout.splitlines() if " generated, " in line))
    assert found.returncode == 0, found.stdout + found.stderr
