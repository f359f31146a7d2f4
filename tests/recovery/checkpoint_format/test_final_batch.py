"""The end of a stream: planned from a checkpoint's files alone, once, and from no damaged ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import JobHeld
from jrs.recovery.checkpoint_format import position as positions
from jrs.recovery.checkpoint_format.final_batch import plan_flush
from jrs.recovery.checkpoint_format.listing import newest
from jrs.recovery.checkpoint_format.position import END_OF_TIME, Position, position
from jrs.recovery.checkpoint_format.unreadable import UnreadableCheckpoint
from jrs.recovery.spark import checkpoint_reads, rescaling

SOURCES = {"v1": ['{"logOffset":3}', "-"], "v2": ['orders:{"logOffset":3}', "1:-"]}


def line(watermark: Any = 1_000, **more: Any) -> str:
    meta = {"batchWatermarkMs": watermark, "batchTimestampMs": 5, "conf": {"a.b": "c"}, **more}
    return json.dumps(meta)


def log(checkpoint: Path, planned: int, committed: int, *, version: str = "v1") -> None:
    """Write the logs of a checkpoint whose newest batches are these."""
    for name, last in (("offsets", planned), ("commits", committed)):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
        for batch in range(last + 1):
            lines = [version, line(), *SOURCES[version]] if name == "offsets" else ["v1", "{}"]
            (checkpoint / name / str(batch)).write_text("\n".join(lines))
    (checkpoint / "state").mkdir(exist_ok=True)


def files(checkpoint: Path) -> dict[str, str]:
    return {
        str(path.relative_to(checkpoint)): path.read_text()
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "ck"


def test_no_checkpoint_is_before_the_first_batch(checkpoint: Path) -> None:
    """Where nothing was ever run, nothing is planned and nothing is committed."""
    assert position(checkpoint) == Position(-1, -1, False, False)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_end_is_planned_behind_the_last_batch(checkpoint: Path, version: str) -> None:
    """The batch that flushes is the last one again, with its sources and its settings, at the end
    of time.
    """
    log(checkpoint, 2, 2, version=version)
    before = files(checkpoint)
    plan_flush(checkpoint, now=7.5)
    after = files(checkpoint)
    said, meta, *sources = after.pop("offsets/3").split("\n")

    assert after == before
    assert (said, sources) == (version, SOURCES[version])
    assert json.loads(meta) == json.loads(line(END_OF_TIME, batchTimestampMs=7500))
    assert position(checkpoint) == Position(3, 2, True, True)
    assert not position(checkpoint).flushed


def test_the_end_is_planned_once(checkpoint: Path) -> None:
    """Planned again, before or after it has run, nothing changes."""
    log(checkpoint, 0, 0)
    plan_flush(checkpoint, now=1.0)
    planned = files(checkpoint)
    plan_flush(checkpoint, now=2.0)

    assert files(checkpoint) == planned

    (checkpoint / "commits" / "1").write_text("v1\n{}")
    flushed = files(checkpoint)
    plan_flush(checkpoint, now=3.0)

    assert files(checkpoint) == flushed
    assert position(checkpoint).flushed


@pytest.mark.parametrize("step", ["link", "fsync", "unlink"])
def test_a_crash_while_it_is_planned(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whatever a crash leaves of the plan, it is planned whole, or not at all, and can be again."""

    class Crash(BaseException):
        pass

    def crash(*args: object) -> None:
        raise Crash

    log(checkpoint, 1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Path if step == "unlink" else os, step, crash)
        with pytest.raises(Crash):
            plan_flush(checkpoint)

    assert position(checkpoint).at_the_end is (step == "unlink")

    plan_flush(checkpoint)

    assert position(checkpoint) == Position(2, 1, True, True)


def test_another_process_has_planned_it(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that plan it at once plan the same: the second finds it there and changes nothing."""
    log(checkpoint, 0, 0)
    link = os.link
    theirs = "\n".join(["v1", line(END_OF_TIME), *SOURCES["v1"]])

    def late(source: Path, target: Path) -> None:
        target.write_text(theirs)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    plan_flush(checkpoint)

    assert files(checkpoint)["offsets/1"] == theirs
    assert [name for name in files(checkpoint) if "tmp" in name] == []


@pytest.mark.parametrize(("planned", "committed"), [(-1, -1), (1, 0)])
def test_no_end_is_planned_off_a_boundary(checkpoint: Path, planned: int, committed: int) -> None:
    """Before the first batch, or in the middle of one, there is no end to plan."""
    log(checkpoint, planned, committed)
    before = files(checkpoint)
    with pytest.raises(JobHeld, match="is not at a batch boundary"):
        plan_flush(checkpoint)

    assert files(checkpoint) == before


@pytest.mark.parametrize(("planned", "committed"), [(3, 1), (1, 2), (-1, 0)])
def test_logs_that_contradict_each_other(checkpoint: Path, planned: int, committed: int) -> None:
    """A batch that is committed and not planned, or two that are planned: the job is held."""
    log(checkpoint, planned, committed)
    with pytest.raises(UnreadableCheckpoint, match="is damaged"):
        position(checkpoint)
    with pytest.raises(JobHeld, match="is damaged"):
        checkpoint_reads.position(checkpoint)


@pytest.mark.parametrize(
    "text",
    ["", "v1", "v1\n", "v1\n[]\n-", "v1\n{}\n-", "v1\nnot json\n-", f"v1\n{line('soon')}\n-",
     f"v1\n{line(None)}\n-", b"\xff\xfe\n\n"],
)  # fmt: skip
def test_an_offset_log_that_cannot_be_read(checkpoint: Path, text: str | bytes) -> None:
    """What is damaged is held, by name, never guessed."""
    log(checkpoint, 1, 1)
    (checkpoint / "offsets" / "1").write_bytes(text if isinstance(text, bytes) else text.encode())
    for read in (plan_flush, position):
        with pytest.raises(UnreadableCheckpoint, match=r"ck cannot be read: batch 1"):
            read(checkpoint)
    for ask in (
        checkpoint_reads.plan_flush,
        checkpoint_reads.position,
        rescaling.partitions,
        rescaling.check,
    ):
        with pytest.raises(JobHeld, match=r"ck cannot be read: batch 1"):
            ask(checkpoint)


def test_a_stream_that_pins_no_partitions(checkpoint: Path) -> None:
    """Nobody knows over how many its state is spread: the job is held."""
    log(checkpoint, 0, 0)
    with pytest.raises(JobHeld, match="ck pins no number of partitions"):
        rescaling.partitions(checkpoint)


def test_files_that_are_no_batches(checkpoint: Path) -> None:
    """Temporary files and checksums of Spark's are no batches."""
    log(checkpoint, 1, 1)
    for name in (".1.crc", ".2.tmp", "tmp", "2.uuid.tmp"):
        (checkpoint / "offsets" / name).write_text("")

    assert position(checkpoint) == Position(1, 1, False, True)


def test_a_batch_that_ends_while_one_looks(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that continues between two looks at its logs is not taken for a damaged one."""
    log(checkpoint, 1, 1)
    looks: list[str] = []

    def move(folder: Path) -> int:
        found = newest(folder)
        looks.append(folder.name)
        if len(looks) == 1:
            log(checkpoint, 4, 4)
        return found

    monkeypatch.setattr(positions, "newest", move)

    assert position(checkpoint) == Position(4, 4, False, True)
