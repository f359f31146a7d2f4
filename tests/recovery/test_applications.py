"""Applications as units: what a name stands for, what is recorded of `main`, and how it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

import jrs
from jrs.contract.errors import (
    Canceled,
    CannotStartHere,
    DuplicateJob,
    Fenced,
    InvalidInput,
    NoSuchJob,
    WrongState,
)
from jrs.contract.operations import Update
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.codec import encode
from jrs.records.model import JobResult, JobSpec, JobStatus, RunnerKind
from jrs.records.not_finished import JobNotFinished
from jrs.recovery.application import Driver
from jrs.recovery.inspect.fsck import fsck
from jrs.recovery.rules.decision import Action
from jrs.store import applications
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from tests.recovery.support import CLUSTER, job
from tests.support import until

NAME = "nightly-2026-11-20"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def client(url: str) -> Iterator[jrs.Client]:
    with jrs.connect(url, cluster=CLUSTER) as client:
        yield client


def run(main: Any, url: str, **options: Any) -> Any:
    options.setdefault("name", NAME)
    return jrs.run(main, url, cluster=CLUSTER, ttl=30.0, **options)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "jrs.application"]


# -- U1: a name stands for one run ---------------------------------------------------------------


def test_u1_a_name_is_required(url: str) -> None:
    """U1: without a name nothing runs; the error shows how to choose one."""
    with pytest.raises(InvalidInput, match=r'name=f"nightly-\{date\}"'):
        run(lambda driver: 1, url, name="")

    assert not Path(url.removeprefix("file://")).exists()


def test_u1_a_result_that_is_handed_back_is_said(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """U1: a caller that gets a stored result instead of a run is told so, with its age."""
    calls: list[int] = []

    def main(driver: Driver) -> int:
        calls.append(1)
        return len(calls)

    assert run(main, url) == 1
    assert warnings_in(caplog) == []
    make_older(url, 93_700.0)

    assert run(main, url) == 1
    assert calls == [1]
    assert warnings_in(caplog) == [
        f"application {NAME!r} has ended 1 d 2 h ago; its result is returned, main does not run"
    ]


def make_older(url: str, seconds: float) -> None:
    with open_backend(url, cluster=CLUSTER) as backend:
        stored = backend.get(keys.RESULTS + NAME)
        entry = JobResultStore(backend).get(NAME)
        assert stored is not None
        assert entry is not None
        assert entry.result is not None
        older = attrs.evolve(entry.result, finished_at=time.time() - seconds)
        backend.commit(Update(stored.key, encode(older), stored.version))


def test_u1_it_is_said_on_stderr_of_a_plain_program(
    url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """U1: a program that has configured no logging prints it."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    for _ in range(2):
        run(lambda driver: 1, url)

    assert "ago; its result is returned, main does not run\n" in capfd.readouterr().err


def test_u1_arguments_are_given_to_main(url: str) -> None:
    """U1: main gets its arguments, and other arguments under the same name are refused."""

    def main(driver: Driver, day: str) -> str:
        return day

    assert run(main, url, arguments={"day": "2026-11-20"}) == "2026-11-20"
    assert run(main, url, arguments={"day": "2026-11-20"}) == "2026-11-20"
    with pytest.raises(InvalidInput, match="a name stands for one run"):
        run(main, url, arguments={"day": "2026-11-21"})
    with pytest.raises(InvalidInput, match="main cannot be called"):
        run(main, url, name="other")


def test_a_main_that_changes_its_arguments(url: str) -> None:
    """It begins again with those that its name stands for, in the same process, too."""
    seen = list[list[str]]()

    def main(driver: Driver, tables: list[str]) -> int:
        seen.append(list(tables))
        tables.clear()
        if len(seen) == 1:
            driver._leadership.lost.set()
            driver.check()
        return driver.epoch

    assert run(main, url, arguments={"tables": ["x", "y"]}) == 2
    assert seen == [["x", "y"], ["x", "y"]]
    assert run(main, url, arguments={"tables": ["x", "y"]}) == 2


def test_a_main_or_function_whose_call_runs_nothing(url: str) -> None:
    """A coroutine function is refused before anything is stored under its name."""

    async def later(given: object) -> None: ...

    with pytest.raises(InvalidInput, match="a coroutine or generator function"):
        run(later, url)

    def main(driver: Driver) -> bool:
        with pytest.raises(InvalidInput, match="a coroutine or generator function"):
            driver.run("job", later)  # type: ignore[unused-coroutine]  # It is refused.
        return True

    assert run(main, url)


def test_u1_another_main_under_the_same_name_is_refused(url: str) -> None:
    """U1: another program gets no result that is not its own, and does not run, either; whether
    the application has ended or not."""

    def main(driver: Driver) -> int:
        raise LookupError("not now")

    def other(driver: Driver) -> int:
        raise AssertionError("it runs")

    with pytest.raises(LookupError):
        run(main, url)
    with pytest.raises(InvalidInput, match="a name stands for one run"):
        run(other, url)

    def ended(driver: Driver) -> int:
        return 1

    run(ended, url, name="ended")
    with pytest.raises(InvalidInput, match="a name stands for one run"):
        run(other, url, name="ended")


def test_u1_a_result_says_which_code_made_it(
    url: str, client: jrs.Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U1: the version is `JRS_CODE_VERSION`, else a digest of the file; another version gets the
    result with a warning."""

    def main(driver: Driver) -> Any:
        return driver.run("part", lambda job: 1)

    run(main, url, name="by-digest")
    assert len(client.job("by-digest").result().code) == 12
    monkeypatch.setenv("JRS_CODE_VERSION", "v1.4")
    run(main, url, name="by-variable")
    monkeypatch.setenv("JRS_CODE_VERSION", "v1.5")
    caplog.clear()
    run(main, url, name="by-variable")

    assert client.job("by-variable").result().code == "v1.4"
    assert "is of code v1.4, and the code here is v1.5" in warnings_in(caplog)[1]


def test_u1_code_is_not_compared_while_the_application_is_unfinished(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U1: a main that raised can be mended under its name."""
    monkeypatch.setenv("JRS_CODE_VERSION", "bad")
    good = threading.Event()

    def main(driver: Driver) -> str:
        if not good.is_set():
            raise LookupError("a bug")
        return "mended"

    with pytest.raises(LookupError):
        run(main, url)
    monkeypatch.setenv("JRS_CODE_VERSION", "good")
    good.set()

    assert run(main, url) == "mended"


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.CANCELED])
def test_u1_a_stored_failure_is_raised(url: str, status: JobStatus) -> None:
    """U1: a job of that name that did not finish gives an error, and no None."""
    with open_backend(url, cluster=CLUSTER) as backend:
        result = JobResult(NAME, status, failure=jrs.Failure("exception", "no good"))
        JobResultStore(backend).create_dirty(result, None)
    with pytest.raises(JobNotFinished, match="no good"):
        run(lambda driver: 1, url)


def test_u1_the_name_of_a_submitted_job_is_refused(url: str, client: jrs.Client) -> None:
    """U1: a job and an application cannot share an id, whichever comes first."""
    client.submit_spec(JobSpec(NAME, job("add")))
    with pytest.raises(InvalidInput, match="is the id of a submitted job"):
        run(lambda driver: 1, url)

    def main(driver: Driver) -> str:
        with pytest.raises(DuplicateJob):
            client.submit_spec(JobSpec("running", job("add")))
        return "refused"

    assert run(main, url, name="running") == "refused"


def test_u19_other_arguments_of_an_ended_job_are_said(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """U19: the stored result of a job id that is used again with other arguments is returned, and
    a warning says so."""

    def main(driver: Driver) -> list[Any]:
        return [driver.run("part", lambda job, n: n, n=n) for n in (1, 1, 2)]

    assert run(main, url) == [1, 1, 1]
    (said,) = warnings_in(caplog)
    assert said.startswith("job 'part' has ended ")
    assert "with another function or other arguments; its result is returned" in said


def test_a_job_of_another_application_is_not_taken_over(
    url: str, client: jrs.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """An unfinished one ends with its own application; the result of an ended one is of another
    run, which a function that has the day from elsewhere does not show."""
    other, days = "nightly-2026-11-19", ["19"]

    def load(job: jrs.Job) -> str:
        return days[-1]

    def main(driver: Driver) -> Any:
        return driver.run("load", load)

    client.submit_spec(JobSpec("slow", "driver:slow", runner=RunnerKind.THREAD, application=other))
    with pytest.raises(InvalidInput, match=f"belongs to application '{other}' and has not ended"):
        run(lambda driver: driver.run("slow", load), url)
    assert client.job(NAME).cancel()

    assert run(main, url, name=other) == "19"
    assert warnings_in(caplog) == []
    days.append("20")
    assert run(main, url, name="nightly-2026-11-21") == "19"
    (said,) = warnings_in(caplog)
    assert said.startswith("job 'load' has ended ")
    assert f"in application '{other}'; its result is returned, nothing runs" in said


def test_an_entry_point_that_cannot_be_called_is_not_stored(url: str) -> None:
    """The same id can be used once the mistake is mended: a host that has the module may lead next,
    and no run of main would get past a job that FAILED."""

    def main(driver: Driver) -> Any:
        with pytest.raises(CannotStartHere, match="no_such_module"):
            driver.run("add", "no_such_module:add", a=1, b=2)
        with pytest.raises(InvalidInput, match="there is no argument 'c'"):
            driver.run("add", job("add"), a=1, c=2)
        return driver.run("add", job("add"), a=1, b=2)

    assert run(main, url) == 3


def test_why_a_job_does_not_run_is_said(
    url: str, client: jrs.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Only an operator can end some reasons, so that a run that waits in silence might do so
    without end."""
    client.pause()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(run, lambda driver: driver.run("part", lambda job: 1), url)
        try:
            until(lambda: warnings_in(caplog), "it says why")
        finally:
            client.unpause()
        assert waits.result() == 1
    assert warnings_in(caplog) == [
        "job 'part' does not run: waiting: the cluster is paused; to end that: `jrs unpause`"
    ]


def test_a_stored_failure_is_said(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised like a new one, though the function, which was perhaps mended, does not run."""

    def main(driver: Driver) -> Any:
        return driver.run("load", lambda job: 1 / 0)

    for version in ("broken", "mended"):
        monkeypatch.setenv("JRS_CODE_VERSION", version)
        with pytest.raises(JobNotFinished, match="ZeroDivisionError"):
            run(main, url)
        assert len(warnings_in(caplog)) == (version == "mended")
    (said,) = warnings_in(caplog)
    assert said.startswith("job 'load' ended FAILED ")
    assert "of code broken and not the code here, mended, and does not run again" in said


# -- U18: an application and its jobs are one unit ------------------------------------------------


def test_u18_an_exception_of_main_is_recorded(url: str, client: jrs.Client) -> None:
    """U18: list, show and explain know the application, its attempts and the newest error."""

    def main(driver: Driver) -> int:
        view = client.job(NAME).view()
        assert view.status is JobStatus.RUNNING
        assert view.application is not None
        if view.application.attempts == 1:
            raise LookupError("no table")
        return 5

    with pytest.raises(LookupError):
        run(main, url)
    view = client.job(NAME).view()
    found = client.job(NAME).explain()

    assert [each.id for each in client.jobs()] == [NAME]
    assert view.application is not None
    assert view.application.error == "LookupError: no table"
    assert (view.application.attempts, view.application.errors) == (1, 1)
    assert found.action is Action.WAIT
    assert any("LookupError: no table" in line for line in found.details)
    assert fsck(client.backend, None).left_over == ()

    assert run(main, url) == 5
    result = client.job(NAME).result()
    assert result.attempt == 2
    assert result.main is not None
    assert result.main.error == "LookupError: no table"
    assert client.backend.get(keys.APPLICATIONS + NAME) is None
    told = [(entry.kind.value, entry.attempt) for entry in client.job(NAME).history()]
    assert told[-5:] == [("attempt", 1), ("died", 1), ("attempt", 2), ("ended", 2), ("clean", 0)]
    assert "main raised LookupError: no table" in [one.text for one in client.job(NAME).history()]


def test_u18_an_application_can_be_canceled(url: str, client: jrs.Client) -> None:
    """U18: a cancel ends the attempts of its jobs, and main by its next call of the driver; the
    result of both is CANCELED, and no replica runs main again."""
    seen: list[type[BaseException]] = []

    def patient(job: jrs.Job) -> None:
        client.job(NAME).cancel(reason="not needed")
        while True:
            job.check()

    def main(driver: Driver) -> int:
        try:
            driver.run("part", patient)
        except Exception as error:
            seen.append(type(error))
            with pytest.raises(Canceled):
                driver.check()
            with pytest.raises(Canceled):
                driver.run("next", lambda job: 1)
            raise
        return 1

    for _ in range(2):
        with pytest.raises(JobNotFinished, match="canceled on request: not needed"):
            run(main, url)
    part = client.job("part").result()

    assert seen == [Canceled]
    assert client.job(NAME).result().status is JobStatus.CANCELED
    assert part.status is JobStatus.CANCELED
    assert part.failure is not None
    assert part.failure.kind == "lost-main"
    assert list(client.results.dirty()) == []
    with pytest.raises(NoSuchJob):
        client.job("next").view()


def test_a_thread_that_outlives_main_is_told_so(url: str) -> None:
    """Nobody has canceled the application: its main has returned, and the thread runs on."""
    begun, heard = threading.Event(), threading.Event()
    got: list[BaseException] = []

    def slow(job: jrs.Job) -> None:
        begun.set()
        heard.wait(60)  # The leader leads until this job has ended.

    def main(driver: Driver) -> int:
        def checks() -> None:
            try:
                while True:
                    driver.check()
            except jrs.JrsError as error:
                got.append(error)
            heard.set()

        def runs() -> None:
            with suppress(jrs.JrsError):
                driver.run("slow", slow)

        for outlives in (checks, runs):
            threading.Thread(target=outlives).start()
        begun.wait(60)
        return 1

    assert run(main, url) == 1
    assert heard.wait(60)
    (error,) = got
    assert isinstance(error, WrongState)
    assert "has returned already" in str(error)


def test_u18_a_main_that_does_not_notice_its_cancel_ends_canceled(
    url: str, client: jrs.Client
) -> None:
    """U18: what main returns after a cancel is no result."""

    def main(driver: Driver) -> int:
        client.job(NAME).cancel()
        until(lambda: client.results.has_entry(NAME), "it is canceled")
        return 1

    with pytest.raises(JobNotFinished):
        run(main, url)

    assert client.job(NAME).result().status is JobStatus.CANCELED


def test_u18_jobs_that_main_no_longer_reaches_end_with_the_application(
    url: str, client: jrs.Client
) -> None:
    """U18: a job of an earlier main, which a changed main does not ask for, is canceled when the
    application ends; until then it waits."""
    stops = threading.Event()

    def main(driver: Driver) -> str:
        view = client.job(NAME).view()
        assert view.application is not None
        if view.application.attempts == 1:
            threading.Thread(target=run_old, args=(driver,), daemon=True).start()
            until(stops.is_set, "the old job runs")
            raise LookupError("changed")
        assert client.job("old").status() is JobStatus.RUNNING
        return "new"

    def run_old(driver: Driver) -> None:
        with suppress(Fenced):
            driver.run("old", forever)

    def forever(job: jrs.Job) -> None:
        stops.set()
        while True:
            job.check()

    with pytest.raises(LookupError):
        run(main, url)
    assert not client.results.has_entry("old")
    assert run(main, url) == "new"
    lost = client.job("old").result()
    assert lost.status is JobStatus.CANCELED
    assert lost.failure is not None
    assert lost.failure.kind == "lost-main"
    assert client.results.has_clean("old")


def test_u18_fsck_names_a_job_whose_application_has_ended(client: jrs.Client) -> None:
    """U18: while no master leads, fsck does not call such a job well."""
    client.results.create_dirty(JobResult(NAME, JobStatus.FINISHED), None)
    client.results.mark_clean(NAME, None)
    client.submit_spec(JobSpec("lost", "driver:lost", application=NAME))

    left = fsck(client.backend, None).left_over
    assert len(left) == 1
    assert "its application 'nightly-2026-11-20' has ended without it" in left[0]
    assert client.job("lost").explain().action is Action.CANCEL


def test_u18_results_are_kept_for_an_unfinished_application(url: str, client: jrs.Client) -> None:
    """U18: expiry under a running application cannot make it impossible to finish."""
    calls: list[str] = []

    def main(driver: Driver) -> Any:
        calls.append("main")
        driver.run("part", lambda job: calls.append("part"))
        until(lambda: client.results.has_clean("part"), "the job is clean")
        if len(calls) == 2:
            raise LookupError("try again")
        return "done"

    with pytest.raises(LookupError):
        run(main, url)
    assert client.results.expire(older_than=0) == []
    with pytest.raises(WrongState, match=f"jrs cancel {NAME}"):
        client.results.delete("part")

    assert run(main, url) == "done"
    assert calls == ["main", "part", "main"]
    assert client.results.expire(older_than=0) == [NAME, "part"]


def test_u18_an_older_cluster_has_no_record_of_applications(
    url: str, client: jrs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U18: in a cluster of an older format an application runs as ever, and leaves no new keys."""
    monkeypatch.setattr(applications, "SINCE_FORMAT", 99)

    def main(driver: Driver) -> Any:
        assert client.backend.get(keys.APPLICATIONS + NAME) is None
        return driver.run("part", lambda job: 2)

    assert run(main, url) == 2
    assert client.job("part").result().application == ""
    with pytest.raises(WrongState):
        client.job(NAME).cancel()


def test_u18_the_arguments_of_main_are_bounded() -> None:
    """The result of an application keeps them next to its payload."""
    with pytest.raises(jrs.TooLarge, match="arguments of main"):
        ApplicationRecord("a", "m:main", {"x": "y" * 20_000})


def test_u18_a_job_cannot_take_the_name_of_an_application_that_waits(
    url: str, client: jrs.Client
) -> None:
    """U18: between two runs of main its name is taken, for jobs as well."""

    def main(driver: Driver) -> None:
        raise LookupError("later")

    with pytest.raises(LookupError):
        run(main, url)
    with pytest.raises(DuplicateJob):
        JobCatalog(client.backend).submit(JobSpec(NAME, job("add")))


# -- U19: what help says ---------------------------------------------------------------------------


def test_u19_help_names_what_users_need() -> None:
    """U19: help of jrs.run, jrs.Stage and jrs.Master lists all arguments and attributes."""
    for argument in ("name:", "arguments:", "resources:", "cleanup_policy:", "report:"):
        assert argument in (jrs.run.__doc__ or "")
    assert "output:" in (jrs.Stage.__doc__ or "")
    assert "cleanup_policy:" in (jrs.Master.__doc__ or "")


def test_u19_a_cleanup_policy_in_plain_numbers() -> None:
    """U19: `jrs master` and `CleanupPolicy.of` take the number of retries and the longest delay."""
    policy = jrs.CleanupPolicy.of(retries=2, max_delay=3.0)

    assert [policy.delay(tries) for tries in (1, 2, 3)] == [1.0, 2.0, 3.0]
    assert [policy.is_last(tries) for tries in (1, 2, 3)] == [False, False, True]
    assert not jrs.CleanupPolicy.of().is_last(1000)
