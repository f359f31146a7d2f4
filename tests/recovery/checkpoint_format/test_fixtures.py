"""Every file of every checkpoint in the fixtures, read by its parser and compared."""

from __future__ import annotations

import re
import shutil
import uuid
import zipfile
from pathlib import Path

import pytest

from jrs.contract.errors import CorruptRecord
from jrs.recovery.checkpoint_format import (
    commit_log,
    file_logs,
    metadata,
    offset_log,
    relocation,
    sink_log,
    state_files,
)
from jrs.recovery.checkpoint_format.checkpoint import batches, is_computed, select
from jrs.recovery.checkpoint_format.offset_log import PARTITIONS, STATE_STORE, SourceOffset
from jrs.recovery.checkpoint_format.position import END_OF_TIME, Position, position
from jrs.recovery.spark import checkpoint_reads, rescaling

from .fixtures import BATCHES, KEYS, MADE, Made

HOUR_ZERO = 1_577_836_800_000
"""The first of January 2020, in milliseconds."""
WATERMARKS = (0, *(HOUR_ZERO + 600_000 * batch for batch in range(-1, BATCHES - 2)))
"""By batch: ten minutes before the newest row of the batches before."""
APPENDED = (0, 0, 0, 4, 4, 4, 4)
"""By batch, the number of files that it added: one for each key, once a window is over."""


@pytest.fixture(params=MADE, ids=str)
def made(request: pytest.FixtureRequest) -> Made:
    found: Made = request.param
    return found


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> Path:
    shutil.copytree(made.folder, tmp_path / "copy")
    return tmp_path / "copy"


def test_there_are_all(made: Made) -> None:
    """There are three releases, and a test here reads each kind of file."""
    kinds = (
        r"ck/metadata|ck/(offsets|commits)/[0-9]|ck/sources/[^/]+/[0-9](\.compact)?"
        r"|out/hourly/_spark_metadata/[0-9](\.compact)?"
        r"|ck/state/0/[01]/[0-9]_[0-9a-f-]{36}\.(changelog|zip)(\.crc)?"
        r"|ck/state/0/[01]/SSTs/.*\.sst|ck/state/0/(0/)?_metadata/(metadata|schema)"
    )
    files = [path for path in made.folder.rglob("*") if path.is_file()]
    unknown = [
        path for path in files if not re.fullmatch(kinds, str(path.relative_to(made.folder)))
    ]

    assert unknown == []
    assert sum(path.stat().st_size for path in files) < 100_000
    assert {each.release for each in MADE} >= {"4.0", "4.1", "4.3"}


def test_metadata(made: Made) -> None:
    found = metadata.read(made.ck / "metadata")

    assert str(uuid.UUID(found.id)) == found.id
    assert found.text() == (made.ck / "metadata").read_text()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_offset_log(made: Made, batch: int) -> None:
    path = made.ck / "offsets" / str(batch)
    found = offset_log.read(path)
    source = "orders" if made.query == "named" else "0"

    assert found.version == ("v2" if made.query == "named" else "v1")
    assert found.watermark == WATERMARKS[batch]
    assert found.partitions == 2
    assert found.conf[PARTITIONS] == "2"
    assert found.conf[STATE_STORE].endswith("RocksDBStateStoreProvider")
    assert found.sources == (SourceOffset(source, f'{{"logOffset":{batch}}}', batch),)
    assert found.text() == path.read_text()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_commit_log(made: Made, batch: int) -> None:
    found = commit_log.read(made.ck / "commits" / str(batch))
    state = {
        path.name.split("_")[1].split(".")[0]: int(path.parent.name)
        for path in made.ck.glob(f"state/0/*/{batch + 1}_*")
    }

    assert found.version == ("v3" if made.query == "named" else "v2")
    assert found.watermark == WATERMARKS[min(batch + 1, BATCHES - 1)]
    assert len(state) == 2
    for unique, partition in state.items():
        assert found.is_of(unique, "0", partition)
        assert not found.is_of(unique, "0", 1 - partition)


@pytest.mark.parametrize("entry", range(BATCHES))
def test_source_log(made: Made, entry: int) -> None:
    name = f"{entry}.compact" if entry % 3 == 2 else str(entry)
    (source,) = (made.ck / "sources").iterdir()
    found = file_logs.read_source(source / name)
    first = 0 if name != str(entry) else entry

    assert [file.path for file in found.named] == [
        f"{made.place}/in/ö {number}+%.json" for number in range(first, entry + 1)
    ]
    assert all(file.is_local for file in found.named)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_sink_log(made: Made, batch: int) -> None:
    name = f"{batch}.compact" if batch % 3 == 2 else str(batch)
    found = file_logs.read_sink(made.table / sink_log.SINK_LOG / name)
    first = 0 if name != str(batch) else batch
    folders = [Path(file.path).parent for file in found.named]
    tables = [Path(made.place, "out", "hourly", f"key={key}") for key in KEYS]

    assert sorted(folders) == sorted(tables * (sum(APPENDED[first : batch + 1]) // len(KEYS)))


def test_a_table(made: Made) -> None:
    """The log names its files, wherever the table is by now."""
    log = made.table / sink_log.SINK_LOG
    named = list(sink_log.counted(made.table))

    assert len(set(named)) == sum(APPENDED)
    assert {path.parent for path in named} == {made.table / f"key={key}" for key in KEYS}
    assert sink_log.batches(log) == set(range(BATCHES))
    assert [name for name, _ in sink_log.files_until(log, 4)] == ["2.compact", "3", "4"]


def test_state(made: Made) -> None:
    """The names give versions, and each snapshot of RocksDB names its shared files."""
    for partition in (0, 1):
        folder = made.ck / "state" / "0" / str(partition)
        shared = {f"SSTs/{path.name}" for path in (folder / "SSTs").iterdir()}
        files = [found for path in folder.iterdir() if (found := state_files.parse_name(path.name))]
        bases = [file for file in files if file.is_base]

        assert sorted(file.version for file in files if not file.is_base) == list(range(1, 8))
        assert sorted(file.version for file in bases) == [3, 6]
        assert {
            each for file in bases for each in state_files.read_zip(folder / file.name)
        } == shared


def test_a_restart(made: Made) -> None:
    """It needs, of the state, the base before the batch and the changes since."""
    newest, older = select(made.ck), select(made.ck, 3)
    (source,) = (path.name for path in (made.ck / "sources").iterdir())

    assert batches(made.ck) == list(range(BATCHES))
    assert newest.batch == BATCHES - 1
    assert newest.query == metadata.read(made.ck / "metadata").id
    assert versions(newest.files) == {"6.zip", "6.changelog", "7.changelog"}
    assert versions(older.files) == {"3.zip", "3.changelog", "4.changelog"}
    assert [name for name in newest.files if "sources" in name] == [
        f"sources/{source}/5.compact",
        f"sources/{source}/6",
    ]
    assert is_computed(made.ck, BATCHES - 1)
    with pytest.raises(FileNotFoundError):
        is_computed(made.ck, BATCHES)


def versions(files: tuple[str, ...]) -> set[str]:
    """Return the versions and kinds of the files of partition 1."""
    names = [Path(name) for name in files if name.startswith("state/0/1/")]
    return {
        f"{path.name.split('_')[0]}{path.suffix}"
        for path in names
        if path.suffix in (".zip", ".changelog")
    }


def test_position(made: Made) -> None:
    assert position(made.ck) == Position(BATCHES - 1, BATCHES - 1, False, True)
    assert rescaling.partitions(made.ck) == 2
    assert rescaling.check(made.ck) is None


def test_the_end_is_planned(copy: Path) -> None:
    """The batch that flushes is the last one at another watermark, and can be read."""
    checkpoint_reads.plan_flush(copy / "ck")
    before, after = (offset_log.read(copy / "ck/offsets" / str(n)) for n in (BATCHES - 1, BATCHES))

    assert position(copy / "ck") == Position(BATCHES, BATCHES - 1, True, True)
    assert after.watermark == END_OF_TIME
    assert (after.version, after.conf, after.sources) == (
        *(before.version, before.conf, before.sources),
    )


def test_logs_elsewhere(made: Made, copy: Path) -> None:
    """Relocated logs name the same files below the new place; relocated back, the old ones."""
    old, new = str(made.place), "/data/ü b%"
    logs = [path for path in copy.rglob("*") if relocation.has_paths(in_a_snapshot(path, copy))]
    before = {path: read(path).named for path in logs}
    for path in logs:
        relocation.relocate(path, old, new)
        moved = [file.path for file in read(path).named]

        assert moved == [file.path.replace(old, new) for file in before[path]]

        relocation.relocate(path, new, old)

        assert [(each.uri, each.path) for each in read(path).named] == [
            (each.uri, each.path) for each in before[path]
        ]
    assert len(logs) == 2 * BATCHES
    assert relocation.folders_in(copy / "out/hourly/_spark_metadata/3") == {
        made.place / "out" / "hourly" / f"key={key}" for key in KEYS
    }


def in_a_snapshot(path: Path, copy: Path) -> str:
    name = path.relative_to(copy).as_posix()
    return f"streams/hourly/{name}" if name.startswith("ck/") else name


def read(path: Path) -> file_logs.FileLog:
    of_sink = path.parent.name == sink_log.SINK_LOG
    return file_logs.read_sink(path) if of_sink else file_logs.read_source(path)


def test_a_query_of_its_own(copy: Path) -> None:
    given = relocation.give_new_id(copy / "ck/metadata")

    assert metadata.read(copy / "ck/metadata").id == given
    assert select(copy / "ck").query == given


def test_a_log_that_missed_batches(copy: Path) -> None:
    """New entries name no files; a new compacted one names all files of those before."""
    log = copy / "out" / "hourly" / sink_log.SINK_LOG
    before = list(sink_log.counted(log.parent))
    sink_log.fill(log, 8, 10)

    assert sorted(path.name for path in log.iterdir())[-3:] == ["6", "7", "8.compact"]
    assert file_logs.read_sink(log / "7").named == ()
    assert len(file_logs.read_sink(log / "8.compact").named) == sum(APPENDED)
    assert list(sink_log.counted(log.parent)) == before


LOGS = ["offsets/6", "commits/6", "sources/{}/6", "../out/hourly/_spark_metadata/6"]


@pytest.mark.parametrize("log", LOGS)
def test_an_unknown_version(made: Made, copy: Path, log: str) -> None:
    """The one error of all parsers names it."""
    source = "orders" if made.query == "named" else "0"
    path = copy / "ck" / log.format(source)
    path.write_text(re.sub("^v[0-9]", "v9", path.read_text()))
    with pytest.raises(CorruptRecord, match=r"6: .* of version v9, .*known: v1"):
        select(copy / "ck")
        list(sink_log.files_until(copy / "out/hourly/_spark_metadata", 6))


def test_an_unknown_version_of_a_snapshot(copy: Path) -> None:
    """The same for the metadata in a zip of RocksDB."""
    path = next((copy / "ck/state/0/1").glob("6_*.zip"))
    with zipfile.ZipFile(path) as archive:
        text = archive.read("metadata").decode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata", re.sub("^v[0-9]", "v9", text))
    with pytest.raises(CorruptRecord, match=r"zip: .* of version v9, .*known: v1, v2"):
        select(copy / "ck")
