"""Masters whose jobs keep their files in objects: killed, on other hosts, and without the store."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import jrs
from jrs.contract.storage_place import WORK, place_of
from jrs.records import keys
from jrs.records.model import JobSpec
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from tests.azurite import serving_azure
from tests.chaos.objects import expected
from tests.clouds import SCHEMES
from tests.s3 import S3, serving
from tests.support import in_long_form, until

STAGES = 6


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with serving(tmp_path_factory.mktemp("s3") / "log") as server:
        yield server
        server.fail()


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(WORK, str(tmp_path / "work"))
    return tmp_path / "work"


@pytest.fixture
def masters(
    request: pytest.FixtureRequest, s3: S3, work: Path, tmp_path: Path
) -> Iterator[Masters]:
    """Masters with objects in S3, or in the kind of store that the test names."""
    scheme = getattr(request, "param", "s3")
    with ExitStack() as stack:
        if scheme == "abfss":
            storage = stack.enter_context(serving_azure(tmp_path / "azure.log")).url()
        else:
            storage = s3.url() if scheme == "s3" else s3.google_url()
        url = (tmp_path / "store").as_uri()
        yield stack.enter_context(Masters(url, storage=storage, ttl=5.0))


def submit(masters: Masters, job_id: str, gate: Path | None = None, **more: str) -> None:
    arguments = {"stages": STAGES, "gate": str(gate or ""), **more}
    JobCatalog(masters.backend).submit(JobSpec(job_id, "tests.chaos.objects:pipeline", arguments))


def result(masters: Masters, job_id: str) -> object:
    return JobResultStore(masters.backend).wait(job_id, 120).payload


def finished(masters: Masters) -> list[str]:
    """Return the stages that have finished, as far as the masters have told."""
    return [one.stage for one in masters.events if one.kind == "stage-finished"]


def storage_of(masters: Masters) -> str:
    return masters._arguments[masters._arguments.index("--storage") + 1]


def output(masters: Masters, job_id: str, stage: str) -> tuple[str, ...]:
    with jrs.connect(masters.url) as client:
        return tuple(one.url for one in client.job(job_id).files(stage).objects)


@pytest.mark.parametrize("masters", SCHEMES, indirect=True)
def test_a_job_and_what_stays_of_it(masters: Masters, s3: S3, work: Path) -> None:
    """Its output stays, also when nothing is left on the host; `gc` finds nothing more."""
    masters.start("m1")
    submit(masters, "job")
    assert result(masters, "job") == {"sum": expected(STAGES)}
    masters.event(lambda one: one.kind == "clean", "it is cleaned up")

    objects = s3.objects(storage_of(masters))
    names = [one.name for one in objects.under("job")]
    # Of three stages that are not temporary: a file and its manifest each; and the index.
    assert len(names) == 3 * 2 + 1
    (url,) = output(masters, "job", "s4")
    assert objects.get(url.removeprefix(f"{objects.url}/")) == b"15"
    shutil.rmtree(work)
    assert output(masters, "job", "s4") == (url,)
    with jrs.connect(masters.url) as client:
        assert client.gc(older_than=0).removed == ()
        assert client.fsck().left_over == ()
        client.expire("job")
        assert len(client.gc(older_than=0).removed) == len(names)
    assert list(objects.under("job")) == []


@pytest.mark.parametrize("loses", ["nothing", "its host"])
def test_the_leader_is_killed_in_every_stage(
    masters: Masters, work: Path, tmp_path: Path, loses: str
) -> None:
    """Each stage runs once, on whatever host: what it wrote is fetched from the objects."""
    gate = tmp_path / "gate"
    for number in range(STAGES):
        Path(f"{gate}.{number}.closed").touch()
    # A host is lost with all of its masters.
    for name in ("m1", "m2") if loses == "nothing" else ("m1",):
        masters.start(name)
    submit(masters, "job", gate)
    kills = in_long_form(STAGES, 2)
    for number in range(STAGES):
        reached = Path(f"{gate}.{number}.reached")
        if number < kills:
            masters.until(reached.exists, f"stage {number} has begun")
            leader = masters.leader()
            leader.kill()
            if loses == "its host":
                shutil.rmtree(work, ignore_errors=True)
            masters.start(f"m{number + 3}")
        Path(f"{gate}.{number}.closed").unlink()
    assert result(masters, "job") == {"sum": expected(STAGES)}

    result_of = JobResultStore(masters.backend).wait("job", 0)
    assert [one.name for one in result_of.stages] == [f"s{number}" for number in range(STAGES)]
    # A leader that was killed may not have told the end of a stage; what was told is over.
    assert len(set(finished(masters))) == len(finished(masters))
    with jrs.connect(masters.url) as client:
        entry = client.job("job").status()
    assert entry == "FINISHED"


def test_u3_a_job_that_failed_is_retried(
    masters: Masters, s3: S3, work: Path, tmp_path: Path
) -> None:
    """U3: on another host, and once all of the old job is gone: the retry has copies of the stages
    that had finished."""
    fault = tmp_path / "fault"
    fault.touch()
    masters.start("m1")
    submit(masters, "job", fault=str(fault))
    masters.until(lambda: JobResultStore(masters.backend).has_clean("job"), "it is clean")
    shutil.rmtree(work)
    fault.unlink()
    with jrs.connect(masters.url) as client:
        new = client.job("job").retry(as_id="again")
        objects = s3.objects(storage_of(masters))
        objects.delete(one.name for one in objects.under("job"))
        assert new.result(timeout=120).payload == {"sum": expected(STAGES)}

    every = [f"s{number}" for number in range(STAGES)]
    masters.until(lambda: len(finished(masters)) >= STAGES, "each stage has finished")
    assert sorted(finished(masters)) == every


def test_a_store_that_is_away(masters: Masters, s3: S3, tmp_path: Path) -> None:
    """503 in the middle of a stage: the attempt waits and says so, and nothing is lost."""
    gate = tmp_path / "gate"
    Path(f"{gate}.2.closed").touch()
    masters.start("m1")
    submit(masters, "job", gate)
    masters.until(Path(f"{gate}.2.reached").exists, "its third stage has begun")
    s3.fail(status=503)
    Path(f"{gate}.2.closed").unlink()
    try:
        waits = masters.event(
            lambda one: one.kind == "waiting" and "503" in one.message, "the attempt waits", 120
        )
    finally:
        s3.fail()

    assert "PUT s3://bucket/" in waits.message
    assert result(masters, "job") == {"sum": expected(STAGES)}


def test_wrong_keys_in_the_middle_of_a_job(masters: Masters, s3: S3, tmp_path: Path) -> None:
    """An operator may be rotating them: that is a wait, too, with what to mend."""
    gate = tmp_path / "gate"
    Path(f"{gate}.1.closed").touch()
    masters.start("m1")
    submit(masters, "job", gate)
    masters.until(Path(f"{gate}.1.reached").exists, "its second stage has begun")
    s3.fail(status=403, code="RequestTimeTooSkewed")
    Path(f"{gate}.1.closed").unlink()
    try:
        masters.event(
            lambda one: one.kind == "waiting" and "set the clock" in one.message, "it waits", 120
        )
    finally:
        s3.fail()
    assert result(masters, "job") == {"sum": expected(STAGES)}


def test_another_work_folder_is_refused(masters: Masters, s3: S3, tmp_path: Path) -> None:
    """Spark records paths, so that all hosts keep their copies in the same folder."""
    masters.start("m1")
    masters.event(lambda one: one.kind == "leading", "it leads")
    masters.leader().kill()
    masters._environment[WORK] = str(tmp_path / "elsewhere")
    masters.start("m2")
    waits = masters.event(lambda one: one.kind == "waiting", "it does not lead")

    assert f"set {WORK}={tmp_path / 'work'} here" in waits.message
    assert place_of(storage_of(masters)).root.parent == tmp_path / "work"


def test_u4_a_cluster_stays_with_its_kind_of_storage(masters: Masters, tmp_path: Path) -> None:
    """U4: while a job has files there, objects are not exchanged for a folder."""
    masters.start("m1")
    masters.event(lambda one: one.kind == "leading", "it leads")
    masters.leader().stop()
    submit(masters, "job")
    until(lambda: not Registry(masters.backend).running(), "the master is gone")
    folder = tmp_path / "folder"
    folder.mkdir()
    with jrs.connect(masters.url, storage=folder) as client:
        with pytest.raises(jrs.WrongState, match="not converted into each other"):
            client.adopt_storage()


def test_objects_of_an_earlier_life(masters: Masters, s3: S3) -> None:
    """A prefix with objects that no record names: the job is held, and they stay."""
    objects = s3.objects(storage_of(masters))
    objects.put("job/data/e9.a9.ffff/s0/out/0-n.txt", b"of another owner")
    masters.start("m1")
    submit(masters, "job")
    held = masters.event(lambda one: one.kind == "held", "it is held")

    assert "has objects of an earlier life" in held.message
    objects.delete(["job/data/e9.a9.ffff/s0/out/0-n.txt"])
    with jrs.connect(masters.url) as client:
        client.job("job").resume()
    assert result(masters, "job") == {"sum": expected(STAGES)}


@pytest.mark.parametrize(
    ("faults", "bucket", "says"),
    [
        ({}, "nosuchbucket", "create the bucket or container, or name another one"),
        ({"status": 403, "code": "SignatureDoesNotMatch"}, "", "correct the credentials"),
        ({"status": 403, "code": "AccessDenied", "methods": ["POST"]}, "", "list and delete"),
        ({"stale": True}, "", "just written cannot be read; name the store itself"),
        ({"status": 503}, "", "the storage does not answer"),
    ],
)
def test_a_store_that_cannot_be_used(
    s3: S3, work: Path, tmp_path: Path, faults: dict[str, Any], bucket: str, says: str
) -> None:
    """A master refuses it in one line, before it campaigns; and so does `jrs doctor`."""
    url = (tmp_path / "store").as_uri()
    storage = s3.url(bucket=bucket) if bucket else s3.url()
    s3.fail(**faults)
    try:
        for command in (["master"], ["doctor", "--create"]):
            done = subprocess.run(
                [sys.executable, "-m", "jrs", "--backend", url, *command, "--storage", storage],
                capture_output=True,
                text=True,
                timeout=120,
            )
            told = done.stderr if command == ["master"] else done.stdout
            assert says in " ".join(told.split()), done
            if command == ["master"]:
                assert (done.returncode, len(told.splitlines())) == (2, 1)
    finally:
        s3.fail()


def test_the_leader_is_killed_while_it_publishes(masters: Masters, s3: S3, work: Path) -> None:
    """Once its record is committed, a publication is completed: by the next attempt, or by the
    cleanup of a job that was canceled instead."""
    storage = storage_of(masters)
    place = f"{storage.partition('?')[0]}-warehouse"
    bucket = s3.objects(storage).bucket()
    s3.fail(status=503, copies=True)
    masters.start("m1")
    masters.start("m2")
    for job_id in ("job", "canceled"):
        arguments = {"target": f"{place}/{job_id}"}
        spec = JobSpec(job_id, "tests.chaos.objects:publishing", arguments)
        JobCatalog(masters.backend).submit(spec)
        recorded = partial(masters.backend.get, keys.stage(job_id, "publish"))
        masters.until(recorded, f"{job_id} has recorded what it publishes")
    assert list(bucket.under(f"{place}".removeprefix(f"{bucket.url}/"))) == []
    with jrs.connect(masters.url) as client:
        client.job("canceled").cancel()
    masters.leader().kill()
    s3.fail()
    assert result(masters, "job") == {"files": 1, "bytes": 2}
    masters.event(lambda one: one.kind == "clean" and one.job_id == "canceled", "it is cleaned up")

    for job_id in ("job", "canceled"):
        pointer = json.loads(bucket.get(f"{place}/{job_id}".removeprefix(f"{bucket.url}/")) or b"")
        (file,) = pointer["files"]
        assert bucket.get(file["url"].removeprefix(f"{bucket.url}/")) == b"15"
