"""The manifests of a stream: one names all batches, whatever their number."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from jrs.contract.errors import CorruptRecord
from jrs.records.objects import BatchManifest, StoredObject
from jrs.recovery.attempt.uploads import Uploads
from jrs.recovery.storage import batches
from tests.recovery.storage.support import Store, objects


@attrs.define
class Stream:
    """A stream whose batches have a file each."""

    store: Store
    folder: Path
    uploads: Uploads = attrs.field(init=False)
    newest: tuple[BatchManifest, StoredObject] | None = None
    batch: int = -1

    def __attrs_post_init__(self) -> None:
        self.uploads = Uploads(objects(self.store), "job", 1, 1, "f" * 12)

    def run(self, count: int = 1, *, rows: bool = True) -> Stream:
        for _ in range(count):
            self.batch += 1
            files = {}
            if rows:
                path = self.folder / f"part-{self.batch}"
                path.write_text(f"rows of {self.batch}")
                files[path.name] = path
            stored = self.uploads.writer.put_files("s/rows", files)
            alone = BatchManifest("job", "s", 1, self.batch, stored)
            named, whole = self.uploads.put_batch(alone, self.newest)
            self.newest = whole, named
        return self

    def files(self, behind: int = -1) -> list[tuple[int, str]]:
        assert self.newest is not None
        found = batches.files_of(objects(self.store), self.newest[0], behind=behind)
        return [(batch, one.path) for batch, one in found]


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setattr(batches, "WIDTH", 4)
    return Stream(Store(), tmp_path)


@pytest.mark.parametrize("count", [1, 4, 5, 6, 16, 17, 21, 64, 65, 86, 200])
def test_all_batches_are_there(stream: Stream, count: int) -> None:
    stream.run(count)
    everything = [(batch, f"part-{batch}") for batch in range(count)]

    assert stream.files() == everything
    for behind in (0, count // 2, count - 2, count - 1):
        assert stream.files(behind) == [one for one in everything if one[0] > behind]


def test_batches_without_rows(stream: Stream) -> None:
    stream.run(2).run(50, rows=False).run(2)

    assert stream.files() == [(0, "part-0"), (1, "part-1"), (52, "part-52"), (53, "part-53")]
    assert stream.newest is not None
    assert len(stream.newest[0].earlier) == 3


def test_c1_a_commit_stays_as_cheap(stream: Stream) -> None:
    """C1: neither the manifest nor the work of a commit grows with the stream's age."""
    stream.run(300)
    assert stream.newest is not None
    levels = [one.level for one in stream.newest[0].earlier]
    assert len(levels) <= (batches.WIDTH - 1) * (max(levels) + 1)
    before = dict(stream.store.calls)
    stream.run(64)
    spent = {name: stream.store.calls[name] - before[name] for name in ("put", "get")}

    # A file and a manifest each; one in 4 merges what it reads, and so on.
    assert spent["put"] <= 2 * 64 + 64 // 4 + 64 // 16 + 64 // 64
    assert spent["get"] <= 64


def test_a_look_behind_a_batch_reads_little(stream: Stream) -> None:
    stream.run(256)
    before = stream.store.calls["get"]
    assert len(stream.files(behind=250)) == 5

    assert stream.store.calls["get"] - before <= 8


def test_what_a_manifest_names(stream: Stream) -> None:
    stream.run(40)
    assert stream.newest is not None
    named = set(batches.objects_of(objects(stream.store), stream.newest[0], checkpoint=True))
    rows = {name for name in stream.store.names() if "/rows/" in name}

    assert rows < named <= set(stream.store.names())


def test_a_merged_manifest_that_was_changed(stream: Stream) -> None:
    stream.run(40)
    merged = next(name for name in stream.store.names() if "/merged/" in name)
    stream.store.damage(merged)
    with pytest.raises(CorruptRecord, match="was changed"):
        stream.files()
