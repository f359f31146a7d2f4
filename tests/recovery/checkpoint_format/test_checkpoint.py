"""Which files of a checkpoint a restart needs, for every layout that Spark's providers have."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from jrs.contract.errors import CorruptRecord, InvalidInput
from jrs.recovery.checkpoint_format.checkpoint import is_sparks, select
from tests.recovery.snapshots.fabricate import JOIN, PROVIDERS, FakeQuery, put


def versions(files: tuple[str, ...], where: str = "state/0/1/") -> list[str]:
    """Return version and kind of the files of one store."""
    names = [Path(name).name for name in files if Path(name).parent == Path(where)]
    return sorted(name.split("_")[0].split(".")[0] + Path(name).suffix for name in names)


@pytest.fixture(params=PROVIDERS)
def query(request: pytest.FixtureRequest, tmp_path: Path) -> FakeQuery:
    return FakeQuery(tmp_path / "ck", request.param).start().run(5)


EXPECTED = {
    "hdfs": ["3.delta", "3.snapshot", "4.delta", "5.delta"],
    "rocksdb": ["5.zip"],
    "rocksdb-v2": ["5.crc", "5.zip"],
    "changelog": ["3.changelog", "3.zip", "4.changelog", "5.changelog"],
    "changelog-v2": [
        *("3.changelog", "3.crc", "3.crc", "3.zip"),
        *("4.changelog", "4.crc", "5.changelog", "5.crc"),
    ],
}


def test_the_newest_batch(query: FakeQuery) -> None:
    """Of each store: the newest base, and every change since (R2)."""
    found = select(query.ck)

    assert found.batch == 4
    assert found.query == query.id
    assert versions(found.files) == EXPECTED[query.provider]
    assert {"metadata", "offsets/3", "offsets/4", "commits/3", "commits/4"} <= set(found.files)
    assert "offsets/2" not in found.files
    assert "state/0/_metadata/metadata" in found.files
    assert "state/0/0/_metadata/schema" in found.files


def test_an_older_batch(query: FakeQuery) -> None:
    """A batch that is still retained, with nothing of later ones."""
    found = select(query.ck, 1)

    kinds = {"hdfs": "delta", "rocksdb": "zip", "rocksdb-v2": "zip"}
    kind = kinds.get(query.provider, "changelog")
    assert found.batch == 1
    assert f"2.{kind}" in versions(found.files)
    assert not [name for name in versions(found.files) if int(name.split(".")[0]) > 2]
    assert not {"offsets/2", "commits/2"} & set(found.files)


def test_shared_files_are_those_that_the_base_names(query: FakeQuery) -> None:
    """Of RocksDB's shared files, those of the chosen base and no others."""
    shared = [name for name in select(query.ck).files if "/SSTs/" in name]

    base = "000005" if query.provider.startswith("rocksdb") else "000003"
    wanted = 0 if query.provider == "hdfs" else query.partitions
    assert [Path(name).name[:6] for name in shared] == [base] * wanted


def test_hidden_files_are_left_out(query: FakeQuery) -> None:
    """Names that begin with a dot are half-written or checksums of another place."""
    put(query.ck / "state/0/0/.6.delta.1234.TID1.tmp", "half")

    assert not [name for name in select(query.ck).files if "/." in f"/{name}"]


def test_the_batch_in_flight_is_left_out(query: FakeQuery) -> None:
    """A batch that was planned, and whose state was written, but that is not committed."""
    committed = select(query.ck)
    query.plan()
    put(query.ck / "state/0/0/6.delta", "uncommitted")

    assert select(query.ck) == committed


@pytest.mark.parametrize("provider", ["changelog-v2", "rocksdb-v2"])
def test_a_batch_that_was_run_again(provider: str, tmp_path: Path) -> None:
    """Of two files of a version, the one whose unique id the commit log names."""
    query = FakeQuery(tmp_path / "ck", provider).start().run(4)
    orphan = "11111111-2222-3333-4444-555555555555"
    for kind in ("zip", "changelog"):
        put(query.ck / f"state/0/1/5_{orphan}.{kind}", "of an attempt that lost")
    query.run(1)

    found = select(query.ck)

    assert not [name for name in found.files if orphan in name]
    assert versions(found.files) == EXPECTED[provider]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_several_stores(provider: str, tmp_path: Path) -> None:
    """A stream-stream join has several stores in each partition."""
    query = FakeQuery(tmp_path / "ck", provider, stores=JOIN).start().run(5)

    found = select(query.ck)

    for store in JOIN:
        assert versions(found.files, f"state/0/1/{store}") == EXPECTED[provider]
        assert f"state/0/0/{store}/_metadata/schema" in found.files


def test_several_operators(tmp_path: Path) -> None:
    """Each stateful operator has a folder of its own."""
    query = FakeQuery(tmp_path / "ck").start().run(5)
    shutil.copytree(query.ck / "state/0", query.ck / "state/1")

    assert versions(select(query.ck).files, "state/1/1") == EXPECTED["hdfs"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("partitions", [2, 4])
def test_rescaled(provider: str, partitions: int, tmp_path: Path) -> None:
    """N6: what a rescale leaves of a partition that is no more, or adds, is no other batch's."""
    query = FakeQuery(tmp_path / "ck", provider, 3).start().run(5)
    pin(query, 4, 3)
    query.partitions, query.base_every = partitions, 6
    query.run()
    pin(query, 5, partitions)
    before, after = select(query.ck, 4).files, select(query.ck, 5).files

    assert stores(before) == {"0", "1", "2"}
    assert stores(after) == {str(partition) for partition in range(partitions)}


def pin(query: FakeQuery, batch: int, partitions: int) -> None:
    """Pin a number of partitions in the offset log, as Spark does."""
    path = query.ck / "offsets" / str(batch)
    conf = json.dumps({"conf": {"spark.sql.shuffle.partitions": str(partitions)}})
    path.write_text(path.read_text().replace('{"batchWatermarkMs":0}', conf))


def stores(files: tuple[str, ...]) -> set[str]:
    found = {name.split("/")[2] for name in files if name.startswith("state/0/")}
    return {name for name in found if name.isdigit()}


def test_nothing_was_committed(tmp_path: Path) -> None:
    """Such a stage begins from its beginning, and needs nothing."""
    query = FakeQuery(tmp_path / "ck").start()
    query.plan()

    found = select(query.ck)

    assert (found.batch, found.files) == (None, ())
    assert select(tmp_path / "nowhere").batch is None


def test_a_batch_that_is_not_retained(query: FakeQuery) -> None:
    """Refused by name, saying what is."""
    query.forget(3)

    with pytest.raises(InvalidInput, match=r"batch 1 is not retained \(retained: 3 to 4\)"):
        select(query.ck, 1)
    assert select(query.ck, 3).batch == 3


def test_file_source_log_ends_where_the_batch_did(tmp_path: Path) -> None:
    """From the last compacted file on, up to the position of the source, which is not the batch."""
    query = FakeQuery(tmp_path / "ck", source="file:///in").start().run(5)
    put(query.ck / "sources/0/2.compact", "v1")
    for number in (0, 1, 2):
        (query.ck / f"sources/0/{number}").unlink()
    put(query.ck / "sources/0/5", "v1")  # Listed for a batch to come.
    put(query.ck / "offsets/5", 'v1\n{"batchWatermarkMs":1}\n{"logOffset":4}')
    put(query.ck / "commits/5", "v1\n{}")
    for part in (0, 1):
        put(query.ck / f"state/0/{part}/6.delta", "of no data")

    sources = [name for name in select(query.ck).files if name.startswith("sources")]

    assert sources == ["sources/0/2.compact", "sources/0/3", "sources/0/4"]


def test_other_sources_log(tmp_path: Path) -> None:
    """The log of a source that is not of files, as the rate source's start time."""
    query = FakeQuery(tmp_path / "ck").start().run(2)
    put(query.ck / "sources/0/0", "v1\n1234")

    assert "sources/0/0" in select(query.ck).files


def test_what_a_source_of_others_keeps(tmp_path: Path) -> None:
    """Kinesis has a folder of records by batch and shard, Iceberg a file of its first offset: they
    raise without it."""
    query = FakeQuery(tmp_path / "ck").start().run(2)
    kept = ["sources/0/shard-commit/0/s1", "sources/0/offset.json", "sources/0/7/s1"]
    for name in kept:
        put(query.ck / name, "")
    put(query.ck / "sources/0/0", "v1\n1234")
    put(query.ck / "sources/0/3", "v1\n5678")  # Of a batch to come.
    found = [name for name in select(query.ck).files if name.startswith("sources")]

    assert found == sorted([*kept, "sources/0/0"])
    assert [name for name in found if is_sparks(name)] == ["sources/0/0"]


@pytest.mark.parametrize("lost", ["5", "4", "3"])
def test_lost_state(lost: str, query: FakeQuery) -> None:
    """A version without which the state cannot be built is not passed over."""
    needed = [name for name in select(query.ck).files if Path(name).name.startswith(lost + ".")]
    state = [name for name in needed if name.startswith("state")]
    for name in state:
        (query.ck / name).unlink()
    if not state or (query.provider == "hdfs" and lost == "3"):
        return

    with pytest.raises(FileNotFoundError):
        select(query.ck)


def test_lost_sst(tmp_path: Path) -> None:
    """A shared file that the base names and that is gone."""
    query = FakeQuery(tmp_path / "ck", "changelog").start().run(5)
    next((query.ck / "state/0/1/SSTs").glob("000003*")).unlink()

    with pytest.raises(FileNotFoundError):
        select(query.ck)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("metadata", "no json"),
        ("offsets/4", "garbage"),
        ("commits/4", ""),
        ("state/0/0/3.zip", "no zip"),
    ],
)
def test_unreadable(path: str, text: str, tmp_path: Path) -> None:
    """A log that cannot be read is named, not guessed."""
    query = FakeQuery(tmp_path / "ck", "changelog").start().run(5)
    put(query.ck / path, text)

    with pytest.raises(CorruptRecord, match=path):
        select(query.ck)


@pytest.mark.parametrize(
    "path",
    ["offsets/3", "sources/0/2", "sources/1/0", "state/0/1/5.changelog", "state/0/1/3.zip", "SSTs"],
)
def test_empty(path: str, tmp_path: Path) -> None:
    """After a power cut, what Spark does not sync may be there, and empty."""
    query = FakeQuery(tmp_path / "ck", "changelog", source="file:///in").start().run(5)
    put(query.ck / "sources/1/0", "\0v1\nof another source")
    whole = select(query.ck).files
    (name,) = [name for name in whole if path in name and (path != "SSTs" or "0/1/" in name)]
    put(query.ck / name, "")

    with pytest.raises(CorruptRecord, match=name):
        select(query.ck)


def test_empty_log_of_rocksdb(tmp_path: Path) -> None:
    """RocksDB's own log files may be empty."""
    query = FakeQuery(tmp_path / "ck", "rocksdb").start().run(1)
    with zipfile.ZipFile(query.ck / "state/0/1/1.zip", "w") as archive:
        archive.writestr("metadata", 'v1\n{"logFiles":[{"dfsLogFileName":"1.log"}]}')
    put(query.ck / "state/0/1/logs/1.log", "")

    assert "state/0/1/logs/1.log" in select(query.ck).files


def test_unreadable_commit(tmp_path: Path) -> None:
    """With format 2 the state's file names are in the commit log."""
    query = FakeQuery(tmp_path / "ck", "changelog-v2").start().run(5)
    put(query.ck / "commits/4", "v1\n" + json.dumps({"stateUniqueIds": 7}))

    with pytest.raises(CorruptRecord, match="commits/4"):
        select(query.ck)
