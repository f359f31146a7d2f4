"""Which jobs a master runs, and what becomes of the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jrs.contract.errors import InvalidInput, JobHeld
from jrs.records.codec import encode
from jrs.records.model import JobSpec, JobStatus, StopMode, StopState
from jrs.records.on_result import OnResult
from jrs.records.settings import JobSettings
from jrs.records.signing import SpecKey
from jrs.recovery.leader.trust import Trust
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops
from jrs.testing.masters import Masters
from tests.recovery.support import JOBS, job
from tests.support import BOUND


def jrs(url: str, *arguments: str, code: int = 0) -> str:
    """Run a command; return all that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "--backend", url, *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def check(trust: Trust, entry: str) -> None:
    spec = JobSpec("job", entry)
    trust.check(spec, encode(spec))


def test_settings_that_bring_code_need_a_signature() -> None:
    """U17: where masters limit what runs, a job with settings is held, unless it is signed."""
    spec = JobSpec("job", "etl.jobs:nightly", settings=JobSettings(env={"PYTHONPATH": "/tmp"}))
    with pytest.raises(JobHeld, match=r"settings that could run other code \(env\)"):
        Trust(("etl.*",)).check(spec, encode(spec))
    key = SpecKey(b"k" * 32)
    signed = key.sign(encode(spec), "job")

    Trust(("etl.*",), key).check(spec, signed)
    Trust().check(spec, encode(spec))


# -- allowed entry points ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "patterns", "runs"),
    [
        ("etl.jobs:nightly", ("etl.*",), True),
        ("etl.jobs:nightly", ("other", "etl.*"), True),
        ("etl:nightly", ("etl.*",), False),
        ("etlx.jobs:nightly", ("etl.*",), False),
        ("ETL.jobs:nightly", ("etl.*",), False),
        ("os:system", ("etl.*",), False),
        ("etl.jobs:nightly", ("etl.jobs:nightly",), True),
        ("etl.jobs:subprocess.run", ("etl.jobs:nightly",), False),
        ("/opt/jobs/a.py:f", ("/opt/jobs/*",), True),
        ("/opt/jobs/../../tmp/a.py:f", ("/opt/jobs/*",), False),
        ("etl.x/../../../tmp/a.py:f", ("etl.*",), False),
        ("driver:f", ("etl.*",), True),
        ("os:system", (), True),
    ],
)
def test_allowed(entry: str, patterns: tuple[str, ...], runs: bool) -> None:
    """X3: by module, by file or by the whole entry point; without a pattern, all."""
    trust = Trust(patterns)
    if runs:
        check(trust, entry)
    else:
        with pytest.raises(JobHeld, match="the masters do not run"):
            check(trust, entry)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("{allowed}/notify --channel data", True),
        ("{allowed}/notify :", True),
        ("notify http://host:80/x", True),
        ("{allowed}/../sh -c 'id; :'", False),
        ("{allowed}/../sh {allowed}/notify :f", False),
        ("{allowed}/link x:f", False),
        ("sh {allowed}/:f", False),
        ("etl.x :f", False),
        ("{allowed}/hooks.py:tell", True),
        ("{allowed}/../sh.py:tell", False),
        ("etl.hooks:tell", True),
    ],
)
def test_allowed_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, runs: bool
) -> None:
    """A command counts by where its program really is; no argument makes another one of it."""
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    for program in (allowed / "notify", tmp_path / "sh"):
        program.touch(mode=0o755)
    (allowed / "link").symlink_to(tmp_path / "sh")
    monkeypatch.setenv("PATH", f"{allowed}:{tmp_path}")
    hook = OnResult(command.format(allowed=allowed))
    spec = JobSpec("job", "etl.jobs:nightly", on_result=hook)
    trust = Trust(("etl.*", f"{allowed}/*", "*:f"))
    if runs:
        trust.check(spec, encode(spec))
    else:
        with pytest.raises(JobHeld, match="the masters do not run"):
            trust.check(spec, encode(spec))


def test_a_link_out_of_it(tmp_path: Path) -> None:
    """X3: a file counts by where it really is."""
    (tmp_path / "allowed").mkdir()
    (tmp_path / "evil.py").write_text("")
    (tmp_path / "allowed" / "nice.py").symlink_to(tmp_path / "evil.py")
    with pytest.raises(JobHeld, match=r"evil.py:f"):
        check(Trust((f"{tmp_path}/allowed/*",)), f"{tmp_path}/allowed/nice.py:f")


def test_no_pattern() -> None:
    """X3: an empty variable in a start script is no pattern."""
    with pytest.raises(InvalidInput, match="allows nothing"):
        Trust(("etl.*", ""))


def test_held_and_not_failed(tmp_path: Path) -> None:
    """X3: what a master may not run is held with the reason, and told once how it is resumed;
    nothing of it is executed, and with another pattern it runs."""
    url = (tmp_path / "store").as_uri()
    marker = tmp_path / "ran"
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(marker)!r}, 'w').close()\ndef main(job): pass\n")
    with Masters(url, options=["--allow-entry", str(JOBS)]) as masters:
        catalog, stops = JobCatalog(masters.backend), JobStops(masters.backend)
        catalog.submit(JobSpec("evil", f"{evil}:main"))
        catalog.submit(JobSpec("good", job("add")))
        masters.start("m1")
        result = JobResultStore(masters.backend).wait("good", BOUND)
        masters.until(lambda: stops.get("evil") is not None, "the job is held")
        held = stops.get("evil")
        said, shown = jrs(url, "explain", "evil"), jrs(url, "show", "evil")

        def told() -> list[str]:
            return [event.message for event in masters.events if event.kind == "held"]

        masters.until(lambda: any(str(evil) in one for one in told()), "the master says why")
        (message,) = told()
        assert not marker.exists()

    assert result.status is JobStatus.FINISHED
    assert held is not None
    assert (held.mode, held.state) == (StopMode.HOLD, StopState.DONE)
    assert f"do not run '{evil}:main': they allow {JOBS}" in said
    assert [text.count("jrs resume") for text in (said, shown, message)] == [1, 1, 1]
    with open_backend(url) as backend:
        assert JobResultStore(backend).get("evil") is None
    jrs(url, "resume", "evil")
    with Masters(url, options=["--allow-entry", str(JOBS), "--allow-entry", f"{evil}:*"]) as more:
        more.start("m2")
        assert JobResultStore(more.backend).wait("evil", BOUND).status is JobStatus.FINISHED
