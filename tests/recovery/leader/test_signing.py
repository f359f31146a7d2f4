"""Signed specs: a master with a key runs only what was signed with that key."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, JobHeld, NoSuchJob
from jrs.contract.operations import Update
from jrs.records import keys
from jrs.records.codec import decode, encode, fields_of, with_fields
from jrs.records.model import JobSpec, JobStatus, StopMode, StopRecord, StopState
from jrs.records.signing import SpecKey
from jrs.recovery.leader.trust import Trust
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops
from jrs.testing.masters import Masters
from tests.recovery.leader.test_trust import jrs
from tests.recovery.snapshots.conftest import catalog, memory, storage
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import JOBS, FaultyMemory, job
from tests.support import BOUND

__all__ = ["catalog", "memory", "storage"]

KEY = SpecKey(b"k" * 32)
OTHER = SpecKey(b"o" * 32)


def runs(backend: Backend, job_id: str, key: SpecKey = KEY) -> bool:
    """Return whether a master with the key would run the job."""
    stored = backend.get(keys.JOBS + job_id)
    assert stored is not None
    try:
        Trust(key=key).check(decode(JobSpec, stored.value, stored.key), stored.value)
    except JobHeld:
        return False
    return True


def test_each_of_two_keys_counts() -> None:
    """X3: while masters know both keys, a job may be signed with either, and with no third one."""
    spec = JobSpec("job", "m:f")
    trust = Trust(key=OTHER, other_keys=(KEY,))
    for key in (KEY, OTHER):
        trust.check(spec, key.sign(encode(spec), ""))

    with pytest.raises(JobHeld, match="not signed with the masters' key"):
        trust.check(spec, SpecKey(b"t" * 32).sign(encode(spec), ""))


def tamper(backend: Backend, job_id: str, **fields: object) -> None:
    """Change a stored spec as a writer of the backend could: checksum included."""
    stored = backend.get(keys.JOBS + job_id)
    assert stored is not None
    changed = with_fields(stored.value, stored.key, **fields)
    backend.commit(Update(stored.key, changed, stored.version))


# -- the key -------------------------------------------------------------------------------------


def test_a_key_file(tmp_path: Path) -> None:
    """X3: what masters and submitters share is the file's bytes; a last line end is none of it."""
    for name, text in (("a", b"x" * 64), ("b", b"x" * 64 + b"\n")):
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(0o640)
    spec = encode(JobSpec("job", "m:f"))

    assert SpecKey.read(tmp_path / "b").has_signed(SpecKey.read(tmp_path / "a").sign(spec, ""), "")


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (b"s3cret\n", 0o600, "has 6 bytes, but needs at least 32"),
        (b"s3cret" * 9, 0o644, "others have access"),
        (None, 0, "cannot be read: No such file"),
    ],
    ids=["short", "open", "missing"],
)
def test_no_key_file(tmp_path: Path, text: bytes | None, mode: int, why: str) -> None:
    """X3: refused in one line without the key, and with what to do."""
    if text is not None:
        (tmp_path / "key").write_bytes(text)
        (tmp_path / "key").chmod(mode)

    with pytest.raises(InvalidInput, match=why) as refused:
        SpecKey.read(tmp_path / "key")

    assert "s3cret" not in str(refused.value)
    assert "kkkk" not in repr(KEY)


# -- what counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"entry_point": "os:system"}, {"arguments": {"x": 2}}, {"job_id": "other"},
        {"runner": "thread"}, {"a field of a later version": 1}, {"signature": ""},
        {"signature": "0" * 64}, {"signature": None}, {"signature": "ü"},
    ],
)  # fmt: skip
def test_what_was_changed(change: dict[str, object]) -> None:
    """X3: nothing of a signed spec can be changed, the job that it is of least of all."""
    signed = KEY.sign(encode(JobSpec("job", "m:f", {"x": 1})), "")

    assert KEY.has_signed(signed, "")
    assert not OTHER.has_signed(signed, "")
    assert not KEY.has_signed(with_fields(signed, "", **change), "")


def test_fields_of_a_later_version() -> None:
    """X3: what a later version has signed counts here, too, and is not lost."""
    later = KEY.sign(with_fields(encode(JobSpec("job", "m:f")), "", timeout=5.0), "")

    assert KEY.has_signed(later, "")
    assert fields_of(later, "")["timeout"] == 5.0


def test_what_is_no_record() -> None:
    with pytest.raises(CorruptRecord):
        KEY.has_signed(b"nonsense", "where")


# -- rewriting a spec keeps or renews its signature -----------------------------------------------


def test_changing(memory: Backend) -> None:
    """X3: a job that is rescaled or upgraded is signed again; without the key that is refused, and
    what was tampered with is not signed by the way."""
    JobCatalog(memory, spec_key=KEY).submit(JobSpec("job", "m:f"))
    assert runs(memory, "job")
    assert not runs(memory, "job", OTHER)

    with pytest.raises(InvalidInput, match=r"is signed.*--spec-key FILE"):
        JobStops(memory).reconfigure("job", partitions=2)
    with pytest.raises(InvalidInput, match="not signed with this key"):
        JobStops(memory, spec_key=OTHER).reconfigure("job", partitions=2)
    assert runs(memory, "job")
    JobStops(memory, spec_key=KEY).reconfigure("job", partitions=2)
    assert runs(memory, "job")

    tamper(memory, "job", arguments={"evil": True})
    assert not runs(memory, "job")
    memory.commit(Update(*_suspended(memory, "job")))
    with pytest.raises(InvalidInput, match="jrs show job, then jrs sign job"):
        JobStops(memory, spec_key=KEY).reconfigure("job", entry_point="m:g")
    JobCatalog(memory, spec_key=KEY).sign("job")
    assert runs(memory, "job")
    JobStops(memory).resume("job")
    assert runs(memory, "job")


def _suspended(backend: Backend, job_id: str) -> tuple[str, bytes, int]:
    stored = backend.get(keys.STOPS + job_id)
    assert stored is not None
    stop = attrs.evolve(decode(StopRecord, stored.value, ""), state=StopState.DONE, again=False)
    return stored.key, encode(stop), stored.version


def test_signing_what_is_not_there(memory: Backend) -> None:
    """X3: signing needs a key and a job."""
    with pytest.raises(NoSuchJob):
        JobCatalog(memory, spec_key=KEY).sign("job")
    with pytest.raises(InvalidInput, match="no key to sign with"):
        JobCatalog(memory).sign("job")


def with_key(catalog: SnapshotCatalog, key: SpecKey | None) -> SnapshotCatalog:
    return SnapshotCatalog(
        catalog.backend, catalog.storage, sleep=lambda seconds: None, spec_key=key
    )


def test_restoring(catalog: SnapshotCatalog, tmp_path: Path) -> None:
    """X3: a restored job keeps its signature; under another id a process with the key signs it. A
    job without a signature gets none."""
    backend, ours = catalog.backend, with_key(catalog, KEY)
    FakeJob(backend, catalog.storage).run(2)
    JobCatalog(backend, spec_key=KEY).sign("job")
    taken = catalog.create("job")
    catalog.export("job", 1, tmp_path / "copy")

    catalog.restore(taken)
    assert runs(backend, "job")
    with pytest.raises(InvalidInput, match=r"is signed.*--spec-key FILE"):
        catalog.restore(taken, as_job="new")
    assert backend.get(keys.JOBS + "new") is None
    ours.restore(taken, as_job="restored")
    ours.fork("job", "forked")
    ours.restore(tmp_path / "copy", as_job="imported")
    assert all(runs(backend, one) for one in ("restored", "forked", "imported"))

    tamper(backend, "job", entry_point="os:system")
    ours.fork("job", "evil")
    assert not runs(backend, "evil")


def test_a_restore_that_was_cut_off(catalog: SnapshotCatalog) -> None:
    """X3: the spec was signed when the job was reserved; a leader finishes it without a key."""
    backend = catalog.backend
    assert isinstance(backend, FaultyMemory)
    FakeJob(backend, catalog.storage).run(2)
    JobCatalog(backend, spec_key=KEY).sign("job")
    taken = catalog.create("job")
    for job_id, key in (("with", KEY), ("without", None)):
        fault = backend.fault(keys.STAGES + job_id, RuntimeError)
        with pytest.raises(RuntimeError):
            with_key(catalog, KEY).restore(taken, as_job=job_id)
        backend.faults.remove(fault)
        with_key(catalog, key).finish_restore(job_id)

    assert runs(backend, "with")
    assert runs(backend, "without")


# -- real masters --------------------------------------------------------------------------------


def test_held_until_it_is_signed(tmp_path: Path) -> None:
    """X3: submitted without the key, a job is held with the reason and not failed; signed on the
    command line, it runs. The master has another key besides. The key is shown by nothing."""
    key, new = tmp_path / "spec.key", tmp_path / "new.key"
    for file, text in (key, "open-sesame-"), (new, "close-again-"):
        file.write_text(text * 4)
        file.chmod(0o600)
    url = (tmp_path / "store").as_uri()
    signed = ("--spec-key", str(key))
    jrs(url, "submit", "signed", job("add"), *signed)
    jrs(url, "submit", "unsigned", job("add"))
    options = ["--spec-key", str(new), *signed, "--allow-entry", str(JOBS)]
    with Masters(url, options=options) as masters:
        stops = JobStops(masters.backend)
        masters.start("m1")
        store = JobResultStore(masters.backend)
        assert store.wait("signed", BOUND).status is JobStatus.FINISHED
        masters.until(lambda: stops.get("unsigned") is not None, "the job is held")
        held = stops.get("unsigned")
        assert held is not None
        assert (held.mode, store.get("unsigned")) == (StopMode.HOLD, None)
        said = jrs(url, "explain", "unsigned") + jrs(url, "show", "unsigned")
        said += jrs(url, "sign", "unsigned", *signed) + jrs(url, "resume", "unsigned")
        assert store.wait("unsigned", BOUND).status is JobStatus.FINISHED
        said += json.dumps([attrs.asdict(event) for event in masters.events])

    assert "not signed with the masters' key" in said
    assert "sesame" not in said
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != key]
    assert not [path for path in files if b"sesame" in path.read_bytes()]


def test_two_keys_in_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masters and submitters may share it while the key is changed: the first key signs. Of the
    other one a submitter needs no file."""
    file, url = tmp_path / "spec.key", (tmp_path / "store").as_uri()
    file.write_text("open-sesame-" * 4)
    file.chmod(0o600)
    monkeypatch.setenv("JRS_SPEC_KEY_FILE", f"{file}:{tmp_path / 'other.key'}")

    jrs(url, "submit", "job", job("add"))

    with open_backend(url) as backend:
        assert runs(backend, "job", SpecKey.read(file))


def test_on_the_command_line(tmp_path: Path) -> None:
    """X3: a key that cannot be used is refused in one line, and nothing is submitted."""
    key = tmp_path / "spec.key"
    key.write_text("sesame")
    key.chmod(0o600)
    url = (tmp_path / "store").as_uri()

    said = jrs(url, "submit", "job", job("add"), "--spec-key", str(key), code=2)

    assert "has 6 bytes, but needs at least 32" in said
    assert "sesame" not in said
    assert not (tmp_path / "store").exists()
