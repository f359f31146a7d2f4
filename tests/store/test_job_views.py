"""Reading many jobs at once: the same as reading each of them, by a few requests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pytest

from jrs.backends.memory import MemoryBackend, Space
from jrs.client.client import Client
from jrs.client.listing import JobOrder
from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord, NoSuchJob
from jrs.contract.operations import Create, Delete, Record
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import (
    AttemptRecord,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    ResultState,
    StageRecord,
)
from jrs.store import job_views
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore

JOBS = 120
PAGE = 100


class Counting(MemoryBackend):
    """Counts its requests, and the keys in the largest one."""

    requests = 0
    largest = 0

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        self.requests += 1
        return super()._get(key, deadline)

    def _get_many(
        self, wanted: Sequence[str], deadline: Deadline
    ) -> list[Record | CorruptRecord | None]:
        self.requests += 1
        self.largest = max(self.largest, len(wanted))
        return [super(Counting, self)._get(key, deadline) for key in wanted]

    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        self.requests += 1
        return super()._page(prefix, after, limit, deadline)


@pytest.fixture
def counting() -> Iterator[Counting]:
    with Counting(Space(), url=f"memory://{uuid.uuid4().hex}") as backend:
        yield backend


def stage(job_id: str, name: str, order: int = 0, payload: Any = None) -> Create:
    record = StageRecord(job_id, name, payload, 1, 1, 0.5, 1.0, order=order)
    return Create(keys.stage(job_id, name), encode(record))


def ended(backend: Backend, job_id: str, *, at: float = 5.0, state: str = "clean") -> None:
    """Write a result of a job that FAILED, in a state."""
    store, spec = JobResultStore(backend), JobSpec(job_id, "m:f", tags=("nightly",))
    failure = Failure("exit", "exit 9")
    store.create_dirty(
        JobResult(job_id, JobStatus.FAILED, failure=failure, finished_at=at, spec=spec), None
    )
    if state != "dirty":
        store.mark_clean(job_id, None)
    if state == "expired":
        store.delete(job_id)


def begun(backend: Backend, job_id: str, stages: int) -> None:
    spec = JobSpec(job_id, "m:f", tags=("nightly",))
    backend.commit(
        Create(keys.JOBS + job_id, encode(spec)),
        *(stage(job_id, f"s{number}", number) for number in range(stages)),
    )


# -- requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "filters"),
    [
        ("clean", {}),
        ("clean", {"order": JobOrder.ENDED}),
        ("clean", {"status": JobStatus.FAILED}),
        ("clean", {"status": JobStatus.FAILED, "order": JobOrder.ENDED}),
        ("clean", {"tag": "nightly"}),
        ("clean", {"since": 1.0, "prefix": "job-"}),
        ("clean", {"state": ResultState.CLEAN}),
        ("dirty", {"state": ResultState.DIRTY}),
        ("dirty", {"order": JobOrder.ENDED}),
        ("expired", {"state": ResultState.EXPIRED}),
        ("expired", {"state": ResultState.EXPIRED, "order": JobOrder.ENDED}),
        ("unfinished", {}),
        ("unfinished", {"order": JobOrder.ENDED}),
        ("unfinished", {"status": JobStatus.CREATED}),
    ],
)
def test_a_page_takes_a_few_requests(
    counting: Counting, kind: str, filters: dict[str, Any]
) -> None:
    """A page of 100 jobs is read by a few requests, whatever it is filtered and ordered by, and
    each of them is for a bounded number of keys; so is the page of handles."""
    for number in range(JOBS):
        if kind == "unfinished":
            begun(counting, f"job-{number:03}", 3)
        else:
            ended(counting, f"job-{number:03}", at=2.0 + number, state=kind)
            if kind == "dirty":
                counting.commit(*(stage(f"job-{number:03}", name) for name in "abc"))
    client = Client(counting)

    counting.requests = 0
    views = list(islice(client.views(**filters), PAGE))
    assert counting.requests < 20
    assert counting.largest <= 2000

    counting.requests = 0
    assert [job.id for job in islice(client.jobs(**filters), PAGE)] == [
        view.job_id for view in views
    ]
    assert counting.requests < 20
    assert len(views) == PAGE
    assert {len(view.stages) for view in views} == {0 if kind in ("clean", "expired") else 3}


def test_the_first_jobs_cost_little(counting: Counting) -> None:
    """Who takes one job of a long list does not have a whole page read."""
    for number in range(JOBS):
        ended(counting, f"job-{number:03}")

    counting.largest = 0
    next(Client(counting).views(order=JobOrder.ENDED))
    assert counting.largest <= 200


def test_large_records_are_read_a_few_at_a_time(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The more bytes the jobs have, the fewer are read together: memory is bounded by bytes."""
    text = "x" * 250_000
    for number in range(50):
        store = JobResultStore(counting)
        store.create_dirty(JobResult(f"j{number:02}", JobStatus.FINISHED, text), None)
    together: list[int] = []
    catalog = JobCatalog(counting)
    get_many = counting.get_many

    def noted(names: Sequence[str], **more: Any) -> Any:
        together.append(len({name.rpartition("/")[2] for name in names}))
        return get_many(names, **more)

    monkeypatch.setattr(counting, "get_many", noted)
    assert len(list(catalog.views(catalog.ids()))) == 50
    assert sum(together) == 50
    assert max(together[1:]) <= (2 << 20) // 250_000


def test_decisions_about_many_jobs_take_a_few_requests(counting: Counting) -> None:
    """What happens to 100 jobs is found by a few requests, also if all are of one application."""
    for number in range(PAGE):
        spec = JobSpec(f"job-{number}", "m:f", application="app")
        counting.commit(Create(keys.JOBS + spec.job_id, encode(spec)))
    client = Client(counting)
    views = list(client.unfinished())

    counting.requests = 0
    explained = list(client.explanations(views))
    assert counting.requests < 20
    assert explained == [client.job(view.job_id).explain() for view in views]


# -- what is read ----------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "file", "etcd", "zookeeper"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Backend]:
    """A cluster on each backend."""
    urls: dict[str, Callable[[], str]] = {
        "memory": lambda: f"memory://{uuid.uuid4().hex}",
        "file": lambda: (tmp_path / "store").as_uri(),
        "etcd": lambda: str(request.getfixturevalue("etcd_server").url()),
        "zookeeper": lambda: str(request.getfixturevalue("zookeeper_server").url()),
    }
    with open_backend(urls[request.param](), cluster=uuid.uuid4().hex) as backend:
        yield backend


def test_jobs_that_are_read_together(anywhere: Backend) -> None:
    """Each job has what it has when it is read alone, in any order of the ids: jobs that run, that
    have ended, that are damaged, and whose ids begin alike; with many stages, and with none."""
    for number in range(20):
        begun(anywhere, f"run-{number}", number)
        begun(anywhere, f"other-{number}", 7)
    for job_id in ("a", "a-b", "a.b", "a0"):
        begun(anywhere, job_id, 60)
    for state in ("dirty", "clean", "expired"):
        ended(anywhere, f"ended-{state}", state=state)
    anywhere.commit(*(stage("ended-dirty", f"s{number}") for number in range(3)))
    begun(anywhere, "damaged", 2)
    anywhere.overwrite(keys.ATTEMPTS + "damaged", b"damaged")
    anywhere.overwrite(keys.stage("damaged", "s0"), b"damaged")
    catalog = JobCatalog(anywhere)
    known = [job_id for job_id in catalog.ids() if not job_id.startswith("other")]
    alone = {job_id: catalog.view(job_id) for job_id in [*known, "ended-expired"]}

    for ids in (sorted(alone), sorted(alone, reverse=True), ["a0", "unknown", "a.b", "run-3"]):
        found = list(catalog.views(ids))
        assert found == [alone[job_id] for job_id in ids if job_id != "unknown"]
    assert len(alone["damaged"].problems) == 2
    assert [len(alone[job_id].stages) for job_id in ("a", "a-b", "a.b", "run-7")] == [60, 60, 60, 7]


@pytest.mark.parametrize("step", range(1, len(job_views._READ) + 1))
def test_a_job_that_ends_while_it_is_read(
    counting: Counting, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """A job that ends, is cleaned up and expires between any two reads of its records is seen as
    it was or as it is, and never as unknown, or as one that has not begun."""
    begun(counting, "job", 0)
    counting.overwrite(keys.ATTEMPTS + "job", encode(AttemptRecord("job")))
    steps, get = iter(range(1, 1 << 30)), MemoryBackend._get

    def get_then(backend: MemoryBackend, key: str, deadline: Deadline) -> Record | None:
        if next(steps) == step:
            with monkeypatch.context() as aside:
                aside.setattr(MemoryBackend, "_get", get)
                ended(counting, "job", state="dirty")
                counting.commit(Delete(keys.ATTEMPTS + "job"), Delete(keys.JOBS + "job"))
                JobResultStore(counting).mark_clean("job", None)
                JobResultStore(counting).delete("job")
        return get(backend, key, deadline)

    monkeypatch.setattr(MemoryBackend, "_get", get_then)
    (view,) = JobCatalog(counting).views(["job"])
    assert view.status in (JobStatus.RUNNING, JobStatus.FAILED)


def test_a_job_that_is_gone_is_left_out(counting: Counting) -> None:
    """A list goes past a job whose records have gone since it was listed; alone it is unknown."""
    begun(counting, "a", 0)
    begun(counting, "b", 0)
    catalog = JobCatalog(counting)
    ids = catalog.ids()

    def gone() -> Iterator[str]:
        for job_id in ids:
            if job_id == "a":
                counting.commit(Delete(keys.JOBS + "a"))
            yield job_id

    assert [view.job_id for view in catalog.views(gone())] == ["b"]
    with pytest.raises(NoSuchJob):
        catalog.view("a")


def test_a_list_by_end_leaves_out_what_has_just_expired(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry of the index whose result expires before it is read yields no job."""
    ended(counting, "a", at=2.0)
    ended(counting, "b", at=1.0)
    views = Client(counting).views(order=JobOrder.ENDED)
    get_many = counting.get_many

    def expire_first(names: Sequence[str], **more: Any) -> Any:
        monkeypatch.setattr(counting, "get_many", get_many)
        JobResultStore(counting).delete("a")
        return get_many(names, **more)

    monkeypatch.setattr(counting, "get_many", expire_first)
    assert [view.job_id for view in views] == ["b"]
