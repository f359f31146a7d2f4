"""Several runs read as one: against a dict, damaged, merged, and in a cluster that grows."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.base import UNREADABLE, Base, record_lines
from jrs.backends.file.base import index as index_module
from jrs.backends.file.base import run as run_module
from jrs.backends.file.base.entries import TOP, Change
from jrs.backends.file.base.filter import path_of
from jrs.backends.file.base.index import Names, Trailer
from jrs.backends.file.base.merge import write_run
from jrs.backends.file.base.overlay import Overlay, Stored
from jrs.backends.file.base.record_lines import HELD
from jrs.backends.file.compaction import Compaction
from jrs.backends.file.format.folder import MARKER
from jrs.backends.file.format.lines import escape
from jrs.backends.file.replica import NEVER
from jrs.backends.file.segments import VERSION_KEY, Form, Header
from jrs.backends.file.segments.begin import _begin_tail, begin_bare
from jrs.backends.shared.ordered_map import OrderedMap
from jrs.contract.errors import CorruptRecord, Unavailable, UnsupportedVersion
from jrs.contract.formats import NEWEST_FORMAT
from jrs.contract.operations import EPOCH_KEY, Create, Delete, Record, Update
from jrs.records.codec import encode
from jrs.records.model import FormatRecord
from jrs.store.cluster_format import raise_format
from jrs.testing.chaos.late import LateCompaction
from jrs.testing.contract import present
from tests.backends.file.test_damaged_base import DAMAGES, Damage

KEYS = [f"{folder}/{number:02}" for folder in ("dirty", "jobs", "results") for number in range(30)]
OTHERS = [f"{folder}/{number:02}x" for folder in ("a", "jobs", "z") for number in range(0, 30, 4)]

Truth = dict[str, bytes]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BLOCK", 256)


class Stack:
    """Runs in a folder, written one on the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: Names = ()
        self._numbers = iter(range(1, 1000))

    def path(self, run: int) -> Path:
        return self.folder / f"{run}.run"

    def remove_filters(self) -> None:
        for path in self.folder.glob("*.filter"):
            path.unlink()

    def open(self) -> Base:
        return Base.open(self.names, self.path)

    def add(self, changes: list[Change], merged: int) -> None:
        """Add a run of changes, merged with the newest `merged` runs."""
        base, number = self.open(), next(self._numbers)
        fd = os.open(self.path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            below = base.names[merged:]
            trailer, filtered = write_run(fd, base.runs[:merged], changes, below, levelled=True)
        finally:
            os.close(fd)
            base.close()
        assert Trailer.at_the_end(self.path(number).read_bytes()) == trailer
        if filtered.is_whole:
            with path_of(self.path(number)).open("wb") as file:
                filtered.write(file.fileno(), trailer)
        self.names = ((number, trailer), *below)


def generation(rng: random.Random, number: int, share: float) -> tuple[list[Change], Truth]:
    """Return changes of some keys, and their values; a deletion has the value b""."""
    made: list[Change] = []
    values: Truth = {}
    for key in KEYS:
        if rng.random() < share:
            value = None if rng.random() < 0.3 else f"{key} of {number} ".encode() * 2
            made.append((key, (value, 10 * number)))
            values[key] = value or b""
    return made, values


def apply(truth: Truth, values: Truth) -> Truth:
    return {key: value for key, value in {**truth, **values}.items() if value}


def check(base: Base, truth: Truth) -> set[str]:
    """Check that each key is answered as the truth or held, in look-ups and in pages; return the
    held keys."""
    held = set()
    for key in [*KEYS, *OTHERS]:
        try:
            record = base.get(key)
        except CorruptRecord:
            held.add(key)
        else:
            assert (record.value if record else None) == truth.get(key), key
    for start in ("", "jobs/15", "results/"):
        page = list(base.after(start, inclusive=True))
        assert [r.key for r in page] == sorted({r.key for r in page})
        seen = [r for r in page if r.value != UNREADABLE and r.key not in held]
        assert all(truth.get(r.key) == r.value for r in seen), start
        assert {key for key in truth if key >= start} - held <= {r.key for r in seen}
        # A page shows nothing of a held key, for an older run may say what is no longer true.
        assert all(truth.get(r.key) == r.value or r.value == UNREADABLE for r in page), start
        for last in ("dirty/20", "jobs/2", "jobs/" + TOP):
            bounded = base.after(start, inclusive=True, up_to=last)
            expected = [r for r in page if r.key <= last]
            assert [r for r in bounded if r.key <= last] == expected, (start, last)
    return held


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(seed=st.integers(0, 10**6), merges=st.lists(st.integers(0, 8), min_size=1, max_size=7))
def test_runs_agree_with_a_dict(tmp_path: Path, seed: int, merges: list[int]) -> None:
    """Changes, deletions and merges of any runs: each key and each page is a dict's."""
    rng, truth = random.Random(seed), Truth()
    for file in tmp_path.iterdir():
        file.unlink()
    stack = Stack(tmp_path)
    for number, merged in enumerate(merges):
        made, values = generation(rng, number + 1, rng.choice((0.05, 0.3, 0.9)))
        stack.add(made, min(merged, len(stack.names)))
        truth = apply(truth, values)
        base = stack.open()
        assert check(base, truth) == set()
        assert not list(base.damage())
        oldest = list(base.runs[-1].entries("", inclusive=True))
        base.close()
        assert all(not isinstance(entry, tuple) and entry.version >= 0 for entry in oldest)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_in_any_run_is_no_wrong_answer(tmp_path: Path, damage: Damage) -> None:
    """D2: what an older run says never shows through the damage of a newer one; merged, every key
    that was held is held, or is answered right."""
    rng = random.Random(damage.__name__)
    for case in range(36):
        folder = tmp_path / str(case)
        folder.mkdir()
        stack, truth = Stack(folder), Truth()
        for number, share in enumerate((0.9, 0.5, 0.3)):
            made, values = generation(rng, number + 1, share)
            stack.add(made, 0)
            truth = apply(truth, values)
        hit = stack.names[case % 3][0]
        whole = stack.path(hit).read_bytes()
        foreign = stack.path(stack.names[(case + 1) % 3][0]).read_bytes()
        data = bytearray(whole)
        damage(data, rng, foreign)
        stack.path(hit).write_bytes(data)

        base = stack.open()
        told = {key for key in (*KEYS, *OTHERS) if not is_held(base, key)}
        assert all(base.get(key) == truth_of(base, truth, key) for key in told)
        assert bytes(data) == whole or list(base.damage())
        base.close()
        # Without their filters, the runs hold more keys, and pages hide exactly these.
        stack.remove_filters()
        base = stack.open()
        held = check(base, truth)
        assert held >= {*KEYS, *OTHERS} - told
        base.close()
        made, values = generation(rng, 9, 0.1)
        truth = apply(truth, values)
        stack.add(made, case % 4)
        base = stack.open()
        check(base, truth)
        still = {key for key in held - set(values) if is_held(base, key)}
        base.close()
        assert still == held - set(values)


def test_a_page_reads_nothing_behind_its_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader asks for the records of each job that ends; most were deleted with earlier jobs."""
    stack, records = Stack(tmp_path), 500
    deleted = [f"jobs/{number:03}" for number in range(records)]
    stack.add([(key, (b"", 1)) for key in deleted], 0)
    changes = OrderedMap[Stored]()
    for key in deleted:
        changes.set(key, (None, 2))
    overlay = Overlay(stack.open(), changes, tmp_path / "log")
    read, passed = list[bytes](), list[str]()
    record_in, after = record_lines.record_in, changes.after

    def reading(line: bytes) -> Record | None:
        read.append(line)
        return record_in(line)

    def passing(start: str, *, inclusive: bool) -> Iterator[tuple[str, Stored]]:
        for key, stored in after(start, inclusive=inclusive):
            passed.append(key)
            yield key, stored

    monkeypatch.setattr(run_module, "record_in", reading)
    monkeypatch.setattr(changes, "after", passing)
    assert not list(overlay.after("heads/a/", inclusive=True, up_to="heads/a/" + TOP))
    assert len(read) + len(passed) < 5, "it stops at the first key behind the prefix"
    assert not list(overlay.after("heads/a/", inclusive=True))
    assert len(read) > records
    assert len(passed) > records
    overlay.close()


def truth_of(base: Base, truth: Truth, key: str) -> Record | None:
    """Return the record that a key should have, with the version that it has."""
    found = base.get(key)
    return Record(key, truth[key], found.version if found else 0) if key in truth else None


def is_held(base: Base, key: str) -> bool:
    try:
        base.get(key)
    except CorruptRecord:
        return True
    return False


def test_a_held_key_holds_no_other(tmp_path: Path) -> None:
    """A commit that cannot be evaluated costs its own keys, also where its run is nearly empty."""
    stack = Stack(tmp_path)
    stack.add([(key, (b"old", 1)) for key in KEYS], 0)
    stack.add([("jobs/07", (None, HELD)), ("results/03", (b"new", 2))], 0)
    for _ in range(3):
        base = stack.open()
        held = check(base, dict.fromkeys(KEYS, b"old") | {"results/03": b"new"})
        base.close()
        assert held == {"jobs/07"}
        stack.add([], len(stack.names))


# -- in a cluster ----------------------------------------------------------------------------


@pytest.fixture
def grown(tmp_path: Path) -> Iterator[FileBackend]:
    with FileBackend(tmp_path, seal_at=4_000) as backend:
        yield backend


def fill(backend: FileBackend, first: int, last: int) -> None:
    for number in range(first, last):
        backend.commit(Create(f"results/{number:05}", b"x" * 200))


def log_of(backend: FileBackend) -> Path:
    return backend.replica.folder


def test_a_cluster_has_few_runs_and_writes_each_record_a_few_times(grown: FileBackend) -> None:
    """Without levels, each of the segments would write the whole base."""
    written, most, seen = 0, 0, set[str]()
    for number in range(2000):
        fill(grown, number, number + 1)
        for path in log_of(grown).glob("*.run"):
            if path.name not in seen:
                seen.add(path.name)
                written += path.stat().st_size
        most = max(most, len(grown.replica.segment.base.runs))
    assert len(seen) > 60
    assert 2 <= most <= 6
    assert written < 8 * 2000 * 240
    assert [r.key for r in grown.scan("results/")] == [f"results/{n:05}" for n in range(2000)]
    assert len(list(log_of(grown).glob("*.run"))) <= most + 1
    assert not list(grown.check())


def test_deletions_and_updates_over_runs(grown: FileBackend) -> None:
    """What is deleted or changed in a newer run is that for every process, old or new."""
    fill(grown, 0, 400)
    for number in range(0, 400, 3):
        grown.commit(Delete(f"results/{number:05}"))
    for number in range(1, 400, 3):
        record = grown.get(f"results/{number:05}")
        assert record is not None
        grown.commit(Update(record.key, b"new", record.version))
    grown.compact()
    expected = {
        f"results/{n:05}": b"new" if n % 3 == 1 else b"x" * 200 for n in range(400) if n % 3
    }
    with FileBackend(Path(grown.replica.folder).parents[2]) as other:
        assert len(other.replica.segment.base.runs) > 1
        for backend in (grown, other):
            assert {r.key: r.value for r in backend.scan("results/")} == expected
            assert backend.get("results/00003") is None
        other.commit(Create("results/00003", b"again"))
        assert [r.key for r in other.scan("results/", limit=3)] == [
            "results/00001", "results/00002", "results/00003"
        ]  # fmt: skip


@pytest.fixture
def two_runs(tmp_path: Path) -> Names:
    """A closed cluster in `tmp_path` whose segment lies on two runs."""
    with FileBackend(tmp_path, seal_at=NEVER) as backend:
        fill(backend, 0, 300)
        backend.compact()
        fill(backend, 300, 310)
        backend.compact()
        names = backend.replica.segment.base.names
    assert len(names) == 2
    return names


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_lost_header_is_made_of_the_newest_run(tmp_path: Path, two_runs: Names, how: str) -> None:
    """The newest run names those that it lies on, so the header is not the only file that does."""
    header = max(tmp_path.rglob("*.segment"))
    if how == "missing":
        header.unlink()
    else:
        header.write_bytes(header.read_bytes()[:-20] + b"x" * 19 + b"\n")
    with FileBackend(tmp_path) as backend:
        assert backend.replica.segment.base.names == two_runs
        assert len(list(backend.scan("results/"))) == 310


def test_a_missing_run_is_refused(tmp_path: Path, two_runs: Names) -> None:
    """A key that only the lost run has must not look absent."""
    (max(tmp_path.rglob("*.run")).parent / f"{two_runs[-1][0]:020}.run").unlink()
    with pytest.raises(Unavailable, match="missing"):
        FileBackend(tmp_path)


def test_an_open_reader_survives_merges_of_others(tmp_path: Path) -> None:
    """A process that read nothing while others merged its runs away continues at the newest."""
    with FileBackend(tmp_path, seal_at=4_000) as backend, FileBackend(tmp_path) as reader:
        fill(backend, 0, 40)
        assert len(list(reader.scan("results/"))) == 40
        fill(backend, 40, 900)
        assert len(list(reader.scan("results/"))) == 900
        assert reader.get("results/00041") is not None


def test_a_raised_cluster_gets_levels(tmp_path: Path) -> None:
    """A log that began without levels has them from the first segment behind the raise."""
    (tmp_path / MARKER).write_text(json.dumps({"format": "jrs", "version": 6}))
    with FileBackend(tmp_path, seal_at=NEVER) as backend:
        forms, runs = [], []
        for number in range(5):
            if number == 2:
                raise_format(backend)
            fill(backend, 300 * number, 300 * number + (300 if number == 0 else 10))
            backend.compact()
            forms.append(backend.replica.segment.log.form)
            runs.append(len(backend.replica.segment.base.runs))
        assert forms == [Form.BATCHES, Form.BATCHES, Form.LEVELS, Form.LEVELS, Form.LEVELS]
        assert runs == [1, 1, 2, 2, 2]
        assert len(list(backend.scan("results/"))) == 340


@pytest.mark.parametrize("small", [True, False], ids=["small", "pending"])
def test_a_segment_that_an_older_process_began(tmp_path: Path, small: bool) -> None:
    """Its tail says that it has no levels. Every process keeps to that, and the next one has."""

    def compaction(folder: Path) -> Compaction:
        return Compaction(folder) if small else LateCompaction(folder, lambda: True)

    with FileBackend(tmp_path, seal_at=NEVER, compaction=compaction) as backend:
        backend.commit(Create(VERSION_KEY, encode(FormatRecord(7))))
        fill(backend, 0, 300)
        backend.compact()
        fill(backend, 300, 310)
        log = backend.replica.segment.log
        log.write_seal()
        identity = parsed(max(tmp_path.rglob("*.segment")))
        assert identity is not None
        begin_bare(log.path.parent, Header(log.end(), identity.identity, Form.BATCHES))
        backend.replica.catch_up_with_base()
        segment = backend.replica.segment
        assert (segment.log.form, len(segment.base.runs)) == (Form.BATCHES, 1)
        fill(backend, 310, 320)
        backend.compact()
        assert (segment.log.form, len(segment.base.runs)) == (Form.LEVELS, 2)
        assert len(list(backend.scan("results/"))) == 320
        assert not list(backend.check())


def parsed(path: Path) -> Header | None:
    return Header.parse(path.read_bytes(), path)


def test_a_segment_of_a_newer_version_is_named(tmp_path: Path) -> None:
    """The marker of the folder does not tell it: clusters of older formats share that."""
    FileBackend(tmp_path).close()
    for path in [*tmp_path.rglob("*.segment"), *tmp_path.rglob("*.tail")]:
        header = parsed(path)
        assert header is not None
        path.write_bytes(header._replace(form=9).line())  # type: ignore[arg-type]

    with pytest.raises(UnsupportedVersion) as refused:
        FileBackend(tmp_path)
    assert f"{tmp_path}/clusters/default/log/" in str(refused.value)
    assert "form 9" in str(refused.value)
    assert f"cluster format {NEWEST_FORMAT}: upgrade it" in str(refused.value)


def test_a_segment_that_a_process_with_another_epoch_began(tmp_path: Path) -> None:
    """It died before it wrote the header, and the next process cannot read the epoch. The tail
    decides, and everything can be read."""

    def pending(folder: Path) -> Compaction:
        return LateCompaction(folder, lambda: False)

    with FileBackend(tmp_path, seal_at=NEVER, compaction=pending) as backend:
        leads = backend.campaign("m1", ttl=60.0, stop=threading.Event())
        assert leads is not None
        leads.resign()
        fill(backend, 0, 10)
        known = present(backend, EPOCH_KEY)
        log = backend.replica.segment.log
        log.write_seal()
        folder = log.path.parent
        first = parsed(max(tmp_path.rglob("*.segment")))
        assert first is not None
        epoch = escape(known.value), known.version
        header = Header(log.end(), first.identity, first.form, epoch=epoch)
        _begin_tail(folder, header)
        begin_bare(folder, header._replace(epoch=None))
    with FileBackend(tmp_path, compaction=pending) as other:
        assert present(other, EPOCH_KEY).version == known.version
        assert len(list(other.scan("results/"))) == 10
