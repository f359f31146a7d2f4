"""Die at every write: a log cut off, or damaged, at every place."""

import itertools
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.format import lines
from jrs.backends.file.replica import Replica
from jrs.backends.shared.group_commit import ACCEPTED
from jrs.contract.errors import Conflict, CorruptRecord, Fenced, JrsError, UnsupportedVersion
from jrs.contract.formats import NEWEST_FORMAT
from jrs.contract.operations import (
    EPOCH_KEY,
    Absent,
    Check,
    Create,
    Delete,
    Fence,
    Op,
    Record,
    Update,
)
from jrs.store.opening import open_backend as open_by_url
from tests.crash.forms import begin_in_old_form
from tests.support import in_long_form

LOG = "00000000000000000000.log"
NEVER = 1 << 40
"""A segment that is never sealed by itself."""
COMMITS = in_long_form(220, 120)


@attrs.frozen
class History:
    """A log, and after each acknowledged commit its size and what the map held then."""

    data: bytes
    states: list[tuple[int, dict[str, Record]]]


def state_of(replica: Replica) -> dict[str, Record]:
    return {record.key: record for record in replica.page("", None, 10**6)}


def random_op(rng: random.Random, known: dict[str, Record]) -> Op:
    """Return an operation that mostly holds, on one of a few keys."""
    key = f"k/{rng.randrange(12)}"
    value = rng.choice([b"", b"\n", b"~\n", b"a\tb\0\\", b"~~", b'{"n":1}', b"in the end: n"])
    version = known[key].version if key in known and rng.random() < 0.9 else rng.randrange(1000)
    if key not in known:
        first: list[Op] = [Create(key, value), Create(key, value), Absent(key), Delete(key)]
        return rng.choice(first)
    kinds: list[Op] = [Update(key, value, version), Update(key, value, version), Delete(key),
                       Delete(key, version), Check(key, version), Create(key, value)]  # fmt: skip
    return rng.choice(kinds)


def record_history(root: Path, commits: int) -> History:
    """Commit through three interleaved handles: accepted, refused and fenced ones, in batches."""
    rng = random.Random(7)
    begin_in_old_form(root)
    handles = [FileBackend(root, seal_at=NEVER) for _ in range(3)]
    log = root / "clusters/default/log" / LOG
    states: list[tuple[int, dict[str, Record]]] = []
    fences: list[Fence] = []
    outcomes = {"accepted": 0, "refused": 0, "fenced": 0}
    for number in range(commits):
        handle = handles[number % 3]
        known = {record.key: record for record in handle.scan("")}
        if number % 25 == 0:
            epoch = known.get(EPOCH_KEY)
            bump: Op = Update(EPOCH_KEY, b"e", epoch.version) if epoch else Create(EPOCH_KEY, b"e")
            handle.commit(bump)
            record = handle.get(EPOCH_KEY)
            assert record is not None
            fences.append(Fence(len(fences), record.version))
            states.append((log.stat().st_size, state_of(handle.replica)))
        ops = {op.key: op for op in (random_op(rng, known) for _ in range(rng.randrange(1, 4)))}
        fence = rng.choice([None, None, fences[-1], fences[0]])
        try:
            handle.commit(*ops.values(), fence=fence)
            outcomes["accepted"] += 1
        except Conflict:
            outcomes["refused"] += 1
        except Fenced:
            outcomes["fenced"] += 1
        handle._refresh()
        states.append((log.stat().st_size, state_of(handle.replica)))
    for handle in handles:
        handle.close()
    assert min(outcomes.values()) > commits / 20, outcomes
    return History(log.read_bytes(), states)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return record_history(tmp_path_factory.mktemp("history"), COMMITS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log folder of its own, on a filesystem whose syncs cost nothing."""
    return tmp_path


@pytest.fixture
def cheap_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of cuts need no durability of their own."""
    for name in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, name, lambda fd: None)


def test_cut_at_every_byte(folder: Path, history: History, cheap_sync: None) -> None:
    """Cut anywhere, the log reopens to exactly the whole acknowledged commits, and takes more."""
    data, log = history.data, folder / LOG
    ends = dict(history.states)
    assert len(ends) > COMMITS
    expected: dict[str, Record] = {}
    more = lines.commit((Create("more", b"1"),), None)
    again = lines.commit((Create("again", b"1"),), None)
    for size in range(len(data) + 1):
        log.write_bytes(data[:size])
        expected = ends.get(size, expected)
        replica = Replica(folder, seal_at=NEVER)
        replica.catch_up()
        found = state_of(replica)
        assert expected == found, f"cut at byte {size}"
        assert replica.append([more]) == [ACCEPTED], f"cut at byte {size}"
        replica.close()

        # A second handle agrees, and so does one that opens after a second cut in the new commit.
        reader = Replica(folder, seal_at=NEVER)
        reader.catch_up()
        assert expected.keys() | {"more"} == state_of(reader).keys(), f"cut at byte {size}"
        assert reader.append([again]) == [ACCEPTED]
        reader.close()


def test_cut_twice(folder: Path, history: History, cheap_sync: None) -> None:
    """A crash in the first commit after a crash loses that commit alone, wherever both were cut."""
    data, log = history.data[: history.states[12][0]], folder / LOG
    batch = lines.BATCH + lines.sealed(lines.commit((Create("more", b"~\n"),), None)[0])
    for first in range(0, len(data), 7):
        log.write_bytes(data[:first])
        replica = Replica(folder, seal_at=NEVER)
        replica.catch_up()
        before = state_of(replica)
        replica.close()
        for second in range(len(batch) + 1):
            log.write_bytes(data[:first] + batch[:second])
            replica = Replica(folder, seal_at=NEVER)
            replica.catch_up()
            found = state_of(replica)
            whole = {"more"} if second == len(batch) else set()
            assert before.keys() | whole == found.keys(), f"cut at {first}, then {second}"
            line = lines.commit((Create("again", b""),), None)
            assert replica.append([line]) == [ACCEPTED]
            replica.close()


def test_a_live_reader_follows_every_byte(folder: Path, history: History, cheap_sync: None) -> None:
    """A reader that looks after each byte of a slow write sees each state at its very byte."""
    log = folder / LOG
    data = history.data[: history.states[60][0]]
    log.touch()
    reader = Replica(folder, seal_at=NEVER)
    fd = os.open(log, os.O_WRONLY | os.O_APPEND)
    seen = {}
    for size in range(1, len(data) + 1):
        os.write(fd, data[size - 1 : size])
        reader.catch_up()
        seen[size] = state_of(reader)
    os.close(fd)
    reader.close()

    for end, state in history.states[:61]:
        assert state == seen[end]


@pytest.fixture
def store(tmp_path: Path, history: History) -> Path:
    """A whole store with the history in it."""
    begin_in_old_form(tmp_path / "store")
    FileBackend(tmp_path / "store").close()
    (tmp_path / "store/clusters/default/log" / LOG).write_bytes(history.data)
    return tmp_path / "store"


def test_a_flipped_bit_in_the_middle(store: Path, history: History, cheap_sync: None) -> None:
    """A flipped bit before the last line is a CorruptRecord or changes nothing; nothing is written.

    A flip in the `~~` that begins a batch, or one that makes a line look like a crash's remnant,
    must not hide an acknowledged commit either.
    """
    log = store / "clusters/default/log" / LOG
    final = history.states[61][1]
    until = history.states[60][0]
    for at, bit in itertools.product(range(until), range(8)):
        damaged = bytearray(history.data[: history.states[61][0]])
        damaged[at] ^= 1 << bit
        log.write_bytes(damaged)
        replica = Replica(log.parent, seal_at=NEVER)
        try:
            replica.catch_up()
        except CorruptRecord:
            line = lines.commit((Create("more", b""),), None)
            [verdict] = replica.append([line])
            assert isinstance(verdict, JrsError)
        else:
            assert final == state_of(replica), f"a silently different state: byte {at}"
        finally:
            replica.close()
        if log.read_bytes()[: len(damaged)] != damaged:
            pytest.fail(f"the log was changed: byte {at}")


def test_damage_is_refused_by_every_call(store: Path, history: History) -> None:
    """On a damaged log every call is a CorruptRecord, and the files stay as they are."""
    log = store / "clusters/default/log" / LOG
    at = history.data.index(b"C\t", 200)
    log.write_bytes(history.data[:at] + b"D" + history.data[at + 1 :])
    before = log.read_bytes()
    calls: list[Callable[[FileBackend], object]] = [
        lambda backend: backend.get("k/1"),
        lambda backend: list(backend.scan("")),
        lambda backend: backend.commit(Create("k", b"")),
        lambda backend: backend.commit_async(Create("k", b"")).result(60),
        FileBackend.compact,
    ]
    for call in calls:
        with FileBackend(store) as backend, pytest.raises(CorruptRecord, match="fsck"):
            call(backend)
    assert before == log.read_bytes()


def test_a_damaged_tail_of_zeros(store: Path, history: History, cheap_sync: None) -> None:
    """A tail that a power cut left as zeros or garbage is stepped over, and work continues."""
    log = store / "clusters/default/log" / LOG
    final = history.states[-1][1]
    for tail in (b"\0" * 4096, b"\xff" * 100, b"~", b"0", b"00000000\tC\t-\t+k", b"\r"):
        log.write_bytes(history.data + tail)
        with FileBackend(store, seal_at=NEVER) as backend:
            assert final == {record.key: record for record in backend.scan("")}
            backend.commit(Create("more", b""))
            assert backend.get("more") is not None
        with FileBackend(store, seal_at=NEVER) as backend:
            assert final.keys() | {"more"} == {record.key for record in backend.scan("")}


def test_a_foreign_file(store: Path, history: History) -> None:
    """Files that are not ours, next to the log, are neither read nor removed."""
    folder = store / "clusters/default/log"
    foreign = ["README", "core.123", "x.log", ".swp", "000.base", "0000000000000000000x.base",
               "00000000000000000000.log~", "lost+found"]  # fmt: skip
    for name in foreign:
        (folder / name).write_bytes(b"foreign")
    with FileBackend(store) as backend:
        assert history.states[-1][1] == {record.key: record for record in backend.scan("")}
        for number in range(3):
            backend.compact()
            backend.commit(Create(f"more/{number}", b""))
        assert len(list(backend.scan("more/"))) == 3
    assert [(folder / name).read_bytes() for name in foreign if not name.startswith("0000000000000")
            ] == [b"foreign"] * 6  # fmt: skip


def test_a_newer_format(store: Path) -> None:
    """A folder of a newer jrs is refused by version, and nothing in it is changed."""
    marker = store / "jrs.json"
    newer = NEWEST_FORMAT + 1
    marker.write_text(json.dumps({"format": "jrs", "version": newer}))
    before = snapshot(store)
    said = f"format {newer}; this jrs reads up to {NEWEST_FORMAT}: upgrade"
    for create in (True, False):
        with pytest.raises(UnsupportedVersion, match=said):
            open_by_url(store.as_uri(), create=create)
    assert before == snapshot(store)


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_an_unknown_kind_of_line(store: Path, history: History) -> None:
    """A line of a kind that only a newer jrs knows is refused by name, not skipped."""
    log = store / "clusters/default/log" / LOG
    log.write_bytes(history.data + lines.sealed(b"X\tnovel\tthing"))
    before = snapshot(store)
    with FileBackend(store) as backend:
        with pytest.raises(UnsupportedVersion, match="newer jrs"):
            backend.get("k/1")
        with pytest.raises(JrsError):
            backend.commit(Create("more", b""))
    assert before == snapshot(store)


@pytest.mark.parametrize("op", [b"*k\tv", b"%k", b"+k\tv\t*l\tw"])
def test_an_unknown_operation(store: Path, history: History, op: bytes) -> None:
    """An operation that only a newer jrs knows is refused by name, not taken for another one."""
    log = store / "clusters/default/log" / LOG
    log.write_bytes(history.data + lines.sealed(b"C\t-\t" + op))
    with FileBackend(store) as backend, pytest.raises(UnsupportedVersion):
        backend.get("k/1")


class TestDamagedBase:
    """A base of 200 keys, some of whose lines are damaged."""

    KEYS = tuple(f"job/{number:03}" for number in range(200))

    @pytest.fixture
    def base(self, tmp_path: Path) -> Path:
        begin_in_old_form(tmp_path)
        with FileBackend(tmp_path) as backend:
            backend.commit(*(Create(key, key.encode()) for key in self.KEYS[:100]))
            backend.commit(*(Create(key, key.encode()) for key in self.KEYS[100:]))
            backend.compact()
        return min((tmp_path / "clusters/default/log").glob("*.base"))

    @pytest.mark.parametrize("numbers", [[0], [100], [199], [50, 51, 52], list(range(60, 140))])
    @pytest.mark.parametrize("where", ["crc", "key", "value", "newline"])
    def test_it_costs_only_what_it_hides(
        self, base: Path, tmp_path: Path, numbers: list[int], where: str
    ) -> None:
        """Every other key reads as before; a hidden one is a CorruptRecord, never absent."""
        damage(base, [self.KEYS[n] for n in numbers], where)
        hidden = {self.KEYS[n] for n in numbers}
        if where == "newline":
            hidden |= {self.KEYS[n + 1] for n in numbers if n < 199}
        with FileBackend(tmp_path) as backend:
            for key in self.KEYS:
                if key in hidden:
                    with pytest.raises(CorruptRecord, match="base"):
                        backend.get(key)
                else:
                    record = backend.get(key)
                    assert record is not None
                    assert record.value == key.encode()
            whole = {r.key for r in backend.scan("job/") if r.value == r.key.encode()}
            assert set(self.KEYS) - hidden <= whole

    def test_writing_next_to_it(self, base: Path, tmp_path: Path) -> None:
        """Keys that are not hidden are updated, deleted and compacted on as ever."""
        damage(base, ["job/100"], "value")
        with FileBackend(tmp_path) as backend:
            record = backend.get("job/050")
            assert record is not None
            backend.commit(Update("job/050", b"new", record.version), Delete("job/150"))
            backend.compact()
            backend.commit(Create("later", b""))
        with FileBackend(tmp_path) as backend:
            record = backend.get("job/050")
            assert record is not None
            assert record.value == b"new"
            assert backend.get("job/150") is None
            with pytest.raises(CorruptRecord):
                backend.get("job/100")

    def test_writing_to_what_it_hides(self, base: Path, tmp_path: Path) -> None:
        """A commit on a hidden key is a CorruptRecord and blocks no other commit or reader."""
        damage(base, ["job/100"], "value")
        with FileBackend(tmp_path) as backend, FileBackend(tmp_path) as other:
            for op in (Create("job/100", b""), Delete("job/100"), Absent("job/100"),
                       Update("job/100", b"", 3), Check("job/100", 3)):  # fmt: skip
                for ops in ((op,), (Create("with", b""), op)):
                    with pytest.raises(CorruptRecord):
                        backend.commit(*ops)
            backend.commit(Create("on", b"1"))
            record = other.get("on")
            assert record is not None
            assert other.get("with") is None
            assert other.get("job/101") is not None
        with FileBackend(tmp_path) as backend:
            assert backend.get("on") is not None


def damage(base: Path, keys: list[str], where: str) -> None:
    """Damage the lines of `keys` in a base."""
    data = base.read_bytes().split(b"\n")
    for at, line in enumerate(data):
        fields = line.split(b"\t")
        if len(fields) == 4 and fields[2].decode() in keys:
            if where == "crc":
                fields[0] = bytes(reversed(fields[0]))
            elif where == "key":
                fields[2] = b"\xff" + fields[2][1:]
            else:
                fields[3] = b"?" + fields[3][1:]
            data[at] = b"\t".join(fields)
    whole = b"\n".join(data)
    if where == "newline":
        for key in keys:
            field = b"?" + key.encode()[1:] + b"\n"
            whole = whole.replace(field, field[:-1] + b" ")
    base.write_bytes(whole)


def test_a_base_that_is_gone(tmp_path: Path) -> None:
    """A folder whose files were removed by hand is refused; nothing is invented in their place."""
    begin_in_old_form(tmp_path)
    with FileBackend(tmp_path) as backend:
        backend.commit(Create("k", b""))
        backend.compact()
    folder = tmp_path / "clusters/default/log"
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    [log] = folder.glob("*.log")
    log.unlink()
    with pytest.raises(JrsError, match="restore"):
        FileBackend(tmp_path)
    assert list(folder.glob("*.log")) == []
