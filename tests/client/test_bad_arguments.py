"""Arguments that cannot be used are refused at once, by an error of jrs that names them; an enum is
taken by its text, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import jrs
from jrs.contract.moments import moment

Call = Callable[[jrs.Client], object]


def _main(driver: jrs.Driver) -> int:
    raise AssertionError("it must not run")


def _master(client: jrs.Client, **options: Any) -> object:
    return jrs.Master(client.backend, **{"url": client.backend.url, **options})


def _submit(client: jrs.Client, **options: Any) -> object:
    return client.submit("m:f", id="job", **options)


def _any(value: object) -> Any:
    return value


WRONG: dict[str, Call] = {
    "JobResultStore(url)": lambda client: jrs.JobResultStore(_any("file:///x")),
    "JobResultStore(None)": lambda client: jrs.JobResultStore(_any(None)),
    "Client(url)": lambda client: jrs.Client(_any("file:///x")),
    "Master(url)": lambda client: jrs.Master(_any("file:///x"), url="file:///x"),
    "Master(url=None)": lambda client: _master(client, url=None),
    "Master(url='')": lambda client: _master(client, url=""),
    "Master(trust=1)": lambda client: _master(client, trust=1),
    "Master(report=1)": lambda client: _master(client, report=1),
    "Master(retention=1)": lambda client: _master(client, retention=1),
    "Master(cleanup_policy=1)": lambda client: _master(client, cleanup_policy=1),
    "Master(preload=[1])": lambda client: _master(client, warm=1, preload=[1]),
    "Master(preload='etl')": lambda client: _master(client, warm=1, preload="etl"),
    "by_end(since=text)": lambda client: client.results.by_end(since=_any("x")),
    "by_end(until=nan)": lambda client: client.results.by_end(until=float("nan")),
    "by_end(tag=1)": lambda client: client.results.by_end(tag=_any(1)),
    "by_end(status=text)": lambda client: client.results.by_end(status="x"),
    "list(state=text)": lambda client: client.results.list(state="x"),
    "list(after=1)": lambda client: client.results.list(after=_any(1)),
    "list(after=0)": lambda client: client.results.list(after=_any(0)),
    "list(limit=-1)": lambda client: client.results.list(limit=-1),
    "jobs(status=text)": lambda client: client.jobs(status="x"),
    "jobs(prefix=None)": lambda client: client.jobs(prefix=_any(None)),
    "run(arguments=[1])": lambda client: jrs.run(
        _main, client.backend.url, name="run", arguments=_any([1])
    ),
    "SpecKey(text)": lambda client: jrs.SpecKey(_any("x" * 40)),
    "SpecKey.read(None)": lambda client: jrs.SpecKey.read(_any(None)),
    "files(None)": lambda client: (
        client.job("job") and jrs.files(client.backend.url, _any(None), "s")
    ),
    "diagnose(None)": lambda client: next(jrs.diagnose(_any(None))),
    "diagnose(ttl=text)": lambda client: [*jrs.diagnose(client.backend.url, ttl=_any("x"))],
    "retries=-1": lambda client: jrs.CleanupPolicy.of(retries=-1),
    "retries=text": lambda client: jrs.CleanupPolicy.of(retries=_any("x")),
    "max_delay=None": lambda client: jrs.CleanupPolicy.of(max_delay=_any(None)),
    "limits=1": lambda client: jrs.RetentionPolicy(limits=_any(1)),
    "every=0": lambda client: _submit(client, snapshots=jrs.SnapshotPolicy(every=0)),
    "on_result timeout=0": lambda client: _submit(client, on_result=jrs.OnResult("x", timeout=0)),
    "runner=text": lambda client: _submit(client, runner="x"),
    "batches=3": lambda client: client.job("job").snapshots.create(batches=_any(3)),
    "format=text": lambda client: client.job("job").snapshots.create(format="x"),
    "campaign('')": lambda client: client.backend.campaign("", ttl=5.0, stop=threading.Event()),
    "campaign(stop=None)": lambda client: client.backend.campaign("m", ttl=5.0, stop=_any(None)),
    "commit(1)": lambda client: client.backend.commit(_any(1)),
    "commit(text)": lambda client: client.backend.commit(jrs.Create("k", _any("v"))),
    "scan(None)": lambda client: next(client.backend.scan(_any(None))),
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[jrs.Client]:
    with jrs.connect(f"file://{tmp_path}/jrs") as client:
        yield client


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_it_is_refused_at_once(client: jrs.Client, call: Call) -> None:
    with pytest.raises(jrs.InvalidInput):
        call(client)


@pytest.mark.parametrize("at", [1.8e12, -1, 1e300, float("inf"), True])
def test_a_time_that_is_none(client: jrs.Client, at: float) -> None:
    for call in (
        lambda: client.jobs(since=at),
        lambda: client.results.by_end(until=at),
        lambda: client.job("job").explain_past(at=at),
    ):
        with pytest.raises(jrs.InvalidInput, match=r"such as time\.time\(\)"):
            call()


def test_milliseconds_are_named(client: jrs.Client) -> None:
    with pytest.raises(jrs.InvalidInput, match="in milliseconds"):
        client.jobs(since=time.time() * 1000)


def test_an_age_before_1970_is_the_beginning() -> None:
    assert moment("since", "36500d", time.time()) == 0.0
    assert moment("since", "1960-01-01", time.time()) == 0.0


def test_texts_of_enums(client: jrs.Client) -> None:
    """As the command line and the HTTP API take them."""
    client.submit("m:f", id="job", runner="thread", exist_ok=True)
    client.results.create_dirty(jrs.JobResult("done", cast(jrs.JobStatus, "FINISHED")), None)
    assert client.job("job").view().spec.runner is jrs.RunnerKind.THREAD  # type: ignore[union-attr]
    done = [job.id for job in client.jobs(status="FINISHED", state="dirty", order="ended")]
    assert done == ["done"]
    listed = [one.job_id for one in client.results.list(status="FINISHED", state="dirty")]
    assert listed == [one.job_id for one in client.results.by_end(status="FINISHED")] == ["done"]
    taken = client.job("job").snapshots.create(format="full")
    assert taken.format is jrs.SnapshotFormat.FULL


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: jrs.JobSettings(conf={"spark.x": _any(1)}),
            r"conf\['spark\.x'\] must be",
        ),
        (lambda: jrs.JobSpec("a", "m:f", tags=(_any(1),)), r"tags\[0\] must be a string"),
        (lambda: jrs.JobSpec("a", "m:f", on_result=_any(1)), "must be an OnResult, not 1"),
    ],
)
def test_messages_name_the_item(make: Callable[[], object], said: str) -> None:
    with pytest.raises(jrs.InvalidInput, match=said):
        make()


def test_a_path_in_place_of_a_url() -> None:
    with pytest.raises(jrs.InvalidInput) as refused:
        jrs.open_backend("/var/foo")
    assert "did you mean file:///var/foo?" in str(refused.value)
    assert "recorded" not in str(refused.value)
