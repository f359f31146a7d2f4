"""JobCatalog and entry points: what a client may ask for, and each clear no."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import (
    CannotStartHere,
    DuplicateJob,
    InvalidInput,
    NoSuchJob,
    OutcomeUnknown,
    Unavailable,
    WrongState,
)
from jrs.contract.texts import is_printable
from jrs.records import keys
from jrs.records.model import (
    AttemptRecord,
    CancelRequest,
    CleanupJournal,
    JobSpec,
    JobStatus,
    StageRecord,
)
from jrs.records.settings import JobSettings
from jrs.recovery.attempt import entry_point
from jrs.recovery.attempt.entry_check import check_entry
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from tests.recovery.conftest import faulty, open_faulty
from tests.recovery.support import JOBS, Faulty, job, put, result, spec, spoil

__all__ = ["faulty", "open_faulty"]

# -- submitting ---------------------------------------------------------------------------------


def test_a_submission_is_durable_and_stamped(faulty: Faulty) -> None:
    """What `submit` returns is what is stored, with the time of the submission."""
    stored = JobCatalog(faulty, now=lambda: 42.0).submit(spec("job", arguments={"a": [1]}))

    assert stored.submitted_at == 42.0
    assert JobCatalog(faulty).view("job").spec == stored


@pytest.mark.parametrize("state", ["submitted", "dirty", "clean", "expired"])
def test_a_duplicate_is_refused_with_the_state_of_the_first(faulty: Faulty, state: str) -> None:
    """A second submission of an id changes nothing and says whether the first has ended."""
    catalog, store = JobCatalog(faulty), JobResultStore(faulty)
    if state == "submitted":
        catalog.submit(spec("job"))
    else:
        store.create_dirty(result("job"), None)
    if state in ("clean", "expired"):
        store.mark_clean("job", None)
    if state == "expired":
        store.delete("job")
    before = list(faulty.scan(""))
    with pytest.raises(DuplicateJob) as refused:
        catalog.submit(spec("job", arguments={"other": 1}))

    assert refused.value.state == state
    assert "choose another job id" in str(refused.value)
    assert list(faulty.scan("")) == before


@pytest.mark.parametrize(
    "job_id",
    ["", "a/b", "a b", "-a", ".a", "..", "a\n", "ä", "a" * 129, "a" * 200, 7, None],
    ids=lambda value: repr(value)[:12],
)
def test_a_bad_job_id_is_refused_before_anything_is_sent(faulty: Faulty, job_id: Any) -> None:
    """Whatever is no job id is refused by every call that takes one."""
    catalog = JobCatalog(faulty)
    for call in (spec, catalog.cancel, catalog.view):
        with pytest.raises(InvalidInput, match="not a job id"):
            call(job_id)

    assert list(faulty.scan("")) == []


@pytest.mark.parametrize("job_id", ["a", "7", "A.b_c-d", "a" * 128])
def test_every_good_job_id_goes_all_the_way(faulty: Faulty, job_id: str) -> None:
    """The shortest, the longest and the strangest id can be submitted, listed and viewed."""
    catalog = JobCatalog(faulty)
    catalog.submit(spec(job_id))

    assert list(catalog.ids()) == [job_id]
    assert catalog.view(job_id).status is JobStatus.CREATED


@pytest.mark.parametrize(
    "arguments",
    [{"x": float("nan")}, {"x": float("inf")}, {"x": {1}}, {"x": b""}, {1: 2}, [1], None],
    ids=repr,
)
def test_arguments_that_are_not_json_are_refused(arguments: Any) -> None:
    """A spec with arguments that JSON cannot hold cannot be made."""
    with pytest.raises(InvalidInput):
        JobSpec("job", "m:f", arguments)


@pytest.mark.parametrize(
    "made",
    [
        lambda text: JobSpec("job", f"/jobs/{text}.py:f"),
        lambda text: JobSpec("job", f"jobs:{text}"),
        lambda text: JobSpec("job", "m:f", settings=JobSettings(env={"A": text})),
        lambda text: JobSpec("job", "m:f", settings=JobSettings(conf={"spark.a": text})),
        lambda text: JobSpec("job", "m:f", settings=JobSettings(python=f"/{text}")),
        lambda text: JobSpec("job", "m:f", settings=JobSettings(packages=(f"g:a:{text}",))),
        lambda text: JobSpec("job", "m:f", settings=JobSettings(py_files=(f"/{text}.py",))),
        lambda text: JobSpec("job", "m:f", settings=JobSettings(secrets={"A": f"file:/{text}"})),
    ],
    ids=["file", "function", "env", "conf", "python", "packages", "py-files", "secrets"],
)
def test_texts_without_a_form_for_the_system_are_refused(
    faulty: Faulty, made: Callable[[str], JobSpec]
) -> None:
    """No attempt could be started with them. Names in another encoding than UTF-8 are no such."""
    for text in ("\ud800", "\0"):
        with pytest.raises(InvalidInput) as refused:
            JobCatalog(faulty).submit(made(text))
        assert is_printable(str(refused.value))
    assert list(faulty.scan("")) == []

    JobCatalog(faulty).submit(made("\udce4"))


@pytest.mark.parametrize("after", [True, False], ids=["applied", "not-applied"])
def test_a_submission_whose_answer_was_lost_is_read_back(faulty: Faulty, after: bool) -> None:
    """With the outcome unknown, `submit` returns if its spec is there and raises if it is not."""
    faulty.fault(keys.JOBS, OutcomeUnknown, after=after)
    if after:
        assert JobCatalog(faulty).submit(spec("job")).job_id == "job"
    else:
        with pytest.raises(OutcomeUnknown):
            JobCatalog(faulty).submit(spec("job"))


def test_a_submission_while_the_backend_is_away_is_not_acknowledged(faulty: Faulty) -> None:
    """`submit` raises Unavailable, and nothing was stored."""
    faulty.down = True
    with pytest.raises(Unavailable):
        JobCatalog(faulty).submit(spec("job"))
    faulty.down = False

    assert list(faulty.scan("")) == []


# -- canceling ----------------------------------------------------------------------------------


def test_cancel_is_durable_and_the_first_reason_stays(faulty: Faulty) -> None:
    """Asking twice is asking once."""
    catalog = JobCatalog(faulty)
    catalog.submit(spec("job"))
    catalog.cancel("job", "too dear")
    catalog.cancel("job", "second thoughts")
    view = JobCatalog(faulty).view("job")

    assert view.cancel is not None
    assert view.cancel.reason == "too dear"


def test_cancel_of_an_unknown_job_is_refused(faulty: Faulty) -> None:
    """There is nothing to cancel, and nothing is stored for a job of that id to come."""
    with pytest.raises(NoSuchJob, match="'nobody'"):
        JobCatalog(faulty).cancel("nobody")

    assert list(faulty.scan("")) == []


@pytest.mark.parametrize("state", ["dirty", "clean", "expired"])
def test_cancel_of_a_job_that_has_ended_is_refused(faulty: Faulty, state: str) -> None:
    """U12: a result never changes, so asking to cancel a job that has one is an error, which says
    how and when the job ended."""
    store = JobResultStore(faulty)
    store.create_dirty(result("job"), None)
    if state != "dirty":
        store.mark_clean("job", None)
    if state == "expired":
        store.delete("job")
    with pytest.raises(WrongState, match=r"has FINISHED.*nothing to cancel"):
        JobCatalog(faulty).cancel("job")

    assert faulty.get(keys.CANCEL + "job") is None


# -- looking ------------------------------------------------------------------------------------


def test_view_shows_everything_of_a_job(faulty: Faulty) -> None:
    """Spec, attempt, stages in the order they ran, request, journal and result are all there."""
    catalog = JobCatalog(faulty)
    catalog.submit(spec("job"))
    put(faulty, keys.ATTEMPTS + "job", AttemptRecord("job", attempt=2))
    put(faulty, keys.stage("job", "a"), StageRecord("job", "a", 1, 1, 1, 0.0, 0.0, order=2))
    put(faulty, keys.stage("job", "b"), StageRecord("job", "b", 1, 1, 1, 0.0, 0.0, order=1))
    put(faulty, keys.stage("job2", "c"), StageRecord("job2", "c", 1, 1, 1, 0.0, 0.0))
    put(faulty, keys.CANCEL + "job", CancelRequest("job"))
    put(faulty, keys.CLEANUP + "job", CleanupJournal("job", tries=3))
    running = catalog.view("job").status
    JobResultStore(faulty).create_dirty(result("job", "x"), None)
    view = catalog.view("job")

    assert running is JobStatus.RUNNING
    assert view.status is JobStatus.FINISHED
    assert [stage.name for stage in view.stages] == ["b", "a"]
    assert view.attempt is not None
    assert view.attempt.attempt == 2
    assert view.cleanup is not None
    assert view.cleanup.tries == 3
    assert view.problems == ()


@pytest.mark.parametrize(
    "key", ["jobs/job", "results/job", "attempts/job", "cancel/job", "cleanup/job", "stages/job/s"]
)
def test_view_names_what_cannot_be_read(faulty: Faulty, key: str) -> None:
    """An unreadable record of any kind is a problem that names its key, and no exception;
    where the status depends on it, there is none."""
    catalog = JobCatalog(faulty)
    catalog.submit(spec("job"))
    spoil(faulty, key)
    view = catalog.view("job")

    assert len(view.problems) == 1
    assert key in view.problems[0]
    assert (view.status is None) == key.startswith(("jobs/", "results/", "attempts/"))


def test_view_of_an_unknown_job_is_refused(faulty: Faulty) -> None:
    """Nothing is known of it, and that is said."""
    with pytest.raises(NoSuchJob):
        JobCatalog(faulty).view("nobody")


def test_view_of_an_expired_job_says_so(faulty: Faulty) -> None:
    """U7: the tombstone is shown: how and when the job ended."""
    store = JobResultStore(faulty)
    store.create_dirty(result("job"), None)
    store.mark_clean("job", None)
    store.delete("job")
    view = JobCatalog(faulty).view("job")

    assert view.entry is not None
    assert view.entry.state.value == "expired"
    assert view.status is JobStatus.FINISHED
    assert view.entry.tombstone is not None
    assert view.entry.tombstone.finished_at == view.entry.finished_at


def test_ids_are_those_of_specs_and_results_in_order_each_once(faulty: Faulty) -> None:
    """A job with both a spec and a result is listed once, whichever come before and after it."""
    catalog, store = JobCatalog(faulty), JobResultStore(faulty)
    for job_id in ("b", "c", "e"):
        catalog.submit(spec(job_id))
    for job_id in ("a", "c", "d", "f"):
        store.create_dirty(result(job_id), None)

    assert list(catalog.ids()) == ["a", "b", "c", "d", "e", "f"]


# -- entry points -------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module to import, with a function inside a class; its name."""
    name = f"entry_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(
        "class Pipe:\n    @staticmethod\n    def run(job): return 'ran'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return name


def test_a_function_of_a_module_is_found(module: str) -> None:
    """``module:function`` gives the function, also below a class."""
    assert entry_point.load("os.path:join") is __import__("os").path.join
    assert entry_point.load(f"{module}:Pipe.run")(None) == "ran"


def test_a_function_of_a_file_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """``/path/file.py:function`` gives the function, and what it imports next to it is found."""
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "path", list(sys.path))

    assert entry_point.load(job("add"))(None, a=2, b=3) == 5
    assert str(JOBS.parent) in sys.path


def test_a_file_that_is_loaded_often_is_on_the_path_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that runs jobs in threads loads the file of each of them."""
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "path", list(sys.path))

    for _ in range(2):
        entry_point.load(job("add"))

    assert sys.path.count(sys.path[0]) == 1


def test_a_file_does_not_take_the_name_of_another_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later import of ``queue`` in this process gets Python's own, whatever the file of a job is
    called; Spark still finds the module of the file."""
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "path", list(sys.path))
    python_own = sys.modules["queue"]
    (tmp_path / "queue.py").write_text("def f(job): return 1\n")
    for _ in range(2):
        function = entry_point.load(f"{tmp_path}/queue.py:f")

    assert sys.modules["queue"] is python_own
    loaded = entry_point.from_file(f"{tmp_path}/queue.py:f")
    assert loaded is not None
    assert function is loaded.__dict__["f"]


def test_modules_of_two_folders_with_one_name_do_not_run_in_threads_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second job would get the helper modules of the first: it is held for another master."""
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(entry_point, "_of_threads", set())
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "helper_of_teams.py").write_text(f"TEAM = '{folder.name}'\n")
        (folder / "team.py").write_text("import helper_of_teams\ndef f(job): pass\n")

    for _ in range(2):
        entry_point.load_in_thread(f"{tmp_path}/a/team.py:f")
    with pytest.raises(CannotStartHere, match=r"b has a module 'helper_of_teams', too"):
        entry_point.load_in_thread(f"{tmp_path}/b/team.py:f")
    (tmp_path / "b" / "helper_of_teams.py").rename(tmp_path / "b" / "helper_of_b.py")
    (tmp_path / "b" / "team.py").write_text(
        "import helper_of_b\nf = lambda job: helper_of_b.TEAM\n"
    )
    assert entry_point.load_in_thread(f"{tmp_path}/b/team.py:f")(None) == "b"
    assert entry_point.load_in_thread("os.path:join") is os.path.join


def test_a_check_changes_nothing_in_this_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A service may check jobs of many folders whose modules have the same names."""
    modules, searched = set(sys.modules), list(sys.path)
    for folder, name in (("a", "ONE"), ("b", "TWO")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "shared.py").write_text(f"{name} = 1\n")
        (tmp_path / folder / "queue.py").write_text(
            f"print('loaded')\nfrom shared import {name}\ndef f(job, day): pass\n"
        )
        check_entry(f"{tmp_path}/{folder}/queue.py:f", {"day": 1})
    with pytest.raises(InvalidInput, match="the argument 'day' is missing"):
        check_entry(f"{tmp_path}/a/queue.py:f", {})
    with pytest.raises(CannotStartHere, match="there is no file"):
        check_entry(f"{tmp_path}/c.py:f", {})
    (tmp_path / "ends.py").write_text("import os\nos._exit(3)\n")
    with pytest.raises(InvalidInput, match="that ends Python with status 3"):
        check_entry(f"{tmp_path}/ends.py:f", {})

    assert (set(sys.modules) - modules, sys.path) == (set(), searched)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not an entry point"),
        ("module", "not an entry point"),
        (":f", "not an entry point"),
        ("m:", "not an entry point"),
        ("os:no_such_function", "there is no 'no_such_function' in os"),
        ("os.path:join.deeper", "there is no 'join.deeper'"),
        ("os:name", "is not a function but a str"),
        (f"{JOBS}:not_callable", "is not a function but a int"),
        ("..:f", "cannot be imported"),
    ],
    ids=lambda text: str(text)[-24:] or "empty",
)
def test_an_entry_point_that_leads_nowhere_is_refused(
    text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way in which an entry point can be wrong is one clear InvalidInput."""
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(InvalidInput) as refused:
        entry_point.load(text)

    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no_such_module_at_all:f", "No module named 'no_such_module_at_all'"),
        ("no_such_package.jobs:f", "No module named 'no_such_package'"),
        ("os.no_such:f", "No module named 'os.no_such'"),
        ("/no/such/file.py:f", "there is no file /no/such/file.py"),
    ],
)
def test_u2_a_module_that_is_missing_here_may_be_elsewhere(text: str, says: str) -> None:
    """U2: a module that this host does not have is no fault of the entry point."""
    with pytest.raises(CannotStartHere) as refused:
        entry_point.load(text)

    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_u2_a_module_that_arrives_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U2: a module that arrives after a first try is found by the same process."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    with pytest.raises(CannotStartHere):
        entry_point.load("arrives_later:f")
    (tmp_path / "arrives_later.py").write_text("def f(job): return 1\n")

    assert entry_point.load("arrives_later:f")(None) == 1


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('at import')", "RuntimeError: at import"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def f(:", "SyntaxError"),
        ("import no_such_module_at_all", "ModuleNotFoundError"),
        ("\0", "SyntaxError"),
    ],
    ids=["raises", "exits", "syntax", "import", "nul"],
)
@pytest.mark.parametrize("form", ["module", "file"])
def test_an_entry_point_that_fails_at_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, says: str, form: str
) -> None:
    """Whatever goes wrong while the code is imported, SystemExit included, is an InvalidInput that
    names it, and nothing half imported stays behind."""
    name = f"broken_{form}_{abs(hash(tmp_path))}"
    path = tmp_path / f"{name}.py"
    path.write_text(f"{source}\ndef f(job): pass\n" if "def" not in source else source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput) as refused:
        entry_point.load(f"{name}:f" if form == "module" else f"{path}:f")

    assert says in str(refused.value)
    assert name not in sys.modules


def test_a_files_entry_point_is_made_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has another working directory, so a file's path is made absolute; a module
    is left as it is."""
    monkeypatch.chdir(JOBS.parent)

    assert entry_point.absolute("jobs.py:add") == f"{JOBS}:add"
    assert entry_point.absolute("package.jobs:add") == "package.jobs:add"
