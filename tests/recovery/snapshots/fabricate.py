"""Checkpoints, sinks and jobs as Spark and jrs leave them, written by hand."""

from __future__ import annotations

import json
import os
import uuid
import zipfile
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import (
    AttemptRecord,
    EpochRecord,
    JobSpec,
    StageRecord,
    StopMode,
    StopRecord,
    StopState,
    StreamRecord,
)
from jrs.records.stored import Stored
from jrs.recovery.files import written_root
from jrs.recovery.files.job_folders import JobStorage

PROVIDERS = ("hdfs", "rocksdb", "changelog", "rocksdb-v2", "changelog-v2")
JOIN = ("left-keyToNumValues", "right-keyToNumValues")


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@attrs.define
class FakeQuery:
    """A streaming query that has as many batches as it is told to run.

    State version V of a store is the list of all versions up to V, so that a test can tell what
    was restored.
    """

    ck: Path
    provider: str = "hdfs"
    partitions: int = 2
    stores: tuple[str, ...] = ("",)
    base_every: int = 3
    source: str | None = None
    """A URI prefix: the file source that it reads has one file for each batch."""
    batch: int = -1
    id: str = attrs.field(factory=lambda: str(uuid.uuid4()))

    def start(self) -> FakeQuery:
        put(self.ck / "metadata", json.dumps({"id": self.id}))
        put(self.ck / ".metadata.crc", "crc")
        put(self.ck / "state/0/_metadata/metadata", "v1")
        for store in self.stores:
            put(self.ck / f"state/0/0/{store}/_metadata/schema", "schema")
        return self

    def run(self, batches: int = 1) -> FakeQuery:
        for _ in range(batches):
            self.plan()
            self.commit()
        return self

    def plan(self) -> None:
        batch = self.batch + 1
        if self.source is not None:
            entry = {"path": f"{self.source}/f{batch}.json", "timestamp": 1, "batchId": batch}
            put(self.ck / f"sources/0/{batch}", "v1\n" + json.dumps(entry))
        offset = f'{{"logOffset":{batch}}}' if self.source is not None else f"{batch * 100}"
        put(self.ck / f"offsets/{batch}", f'v1\n{{"batchWatermarkMs":0}}\n{offset}')
        put(self.ck / f"offsets/.{batch}.crc", "crc")

    def commit(self) -> None:
        self.batch += 1
        ids = [[self._state(part, store) for store in self.stores] for part in self._parts()]
        body: dict[str, object] = {"nextBatchWatermarkMs": 0}
        if self.provider.endswith("v2"):
            body["stateUniqueIds"] = {"0": ids}
        put(self.ck / f"commits/{self.batch}", "v1\n" + json.dumps(body))

    def forget(self, before: int) -> None:
        """Remove the batches before one, as Spark's maintenance does."""
        for log in ("offsets", "commits"):
            for batch in range(before):
                (self.ck / log / str(batch)).unlink(missing_ok=True)

    def _parts(self) -> range:
        return range(self.partitions)

    def _state(self, part: int, store: str) -> str:
        version, unique = self.batch + 1, str(uuid.uuid4())
        folder = self.ck / f"state/0/{part}/{store}"
        name = f"{version}_{unique}" if self.provider.endswith("v2") else str(version)
        is_base = version % self.base_every == 0
        if self.provider == "hdfs":
            put(folder / f"{name}.delta", f"delta {version}")
            put(folder / f".{name}.delta.crc", "crc")
            if is_base:
                put(folder / f"{name}.snapshot", f"snapshot {version}")
        if self.provider.startswith("changelog"):
            put(folder / f"{name}.changelog", f"changelog {version}")
            if self.provider.endswith("v2"):
                put(folder / f"{name}.changelog.crc", "its own checksum")
        if self.provider.startswith("rocksdb") or (self.provider != "hdfs" and is_base):
            sst = put(folder / f"SSTs/{version:06}-{uuid.uuid4()}.sst", f"sst {version}").name
            metadata = {"sstFiles": [{"localFileName": "1.sst", "dfsSstFileName": sst}]}
            folder.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
                archive.writestr("metadata", "v1\n" + json.dumps(metadata))
                archive.writestr("CURRENT", f"zip {version}")
            if self.provider.endswith("v2"):
                put(folder / f"{name}.zip.crc", "its own checksum")
        return unique


def file_sink(folder: Path, batches: int, *, compact: int = 4, start: int = 0) -> None:
    """Publish batches as Spark's file sink does; every `compact`-th log file is a compacted one."""
    entries: list[str] = []
    for batch in range(batches):
        file = folder / f"part-{batch:05}.parquet"
        entry = json.dumps({"path": file.as_uri(), "size": 4, "action": "add"})
        entries.append(entry)
        if batch < start:
            continue
        put(file, f"rows of {batch}")
        is_compact = (batch + 1) % compact == 0
        name = f"{batch}.compact" if is_compact else str(batch)
        lines = entries if is_compact else [entry]
        put(folder / "_spark_metadata" / name, "\n".join(["v1", *lines]))


def jrs_sink(folder: Path, batches: int) -> None:
    for batch in range(batches):
        put(folder / f"batch={batch}" / f"part-{batch:032x}.parquet", f"rows of {batch}")


@attrs.define
class FakeJob:
    """A job with a finished batch stage and a streaming stage that has a file sink."""

    backend: Backend
    storage: JobStorage
    job_id: str = "job"
    provider: str = "changelog"
    query: FakeQuery = attrs.field(init=False)
    epoch: Path = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        if self.backend.get(keys.EPOCH) is None:
            self.record(keys.EPOCH, EpochRecord(3, "an earlier leader"))
        self.epoch = self.storage.take_over(self.job_id, 3)
        ck = self.epoch / "streams" / "hourly" / "ck"
        source = (self.storage.folder(self.job_id) / "out" / "typed").as_uri()
        self.query = FakeQuery(ck, self.provider, source=source).start()
        written_root.note(ck.parent, self.storage.root)
        put(self.epoch / "streams" / "hourly" / "staging" / "half", "half-written")
        put(self.out("typed") / "table.parquet", "typed rows")
        self.record(keys.JOBS + self.job_id, JobSpec(self.job_id, "m:f", {"x": 1}))
        self.record(
            keys.stage(self.job_id, "typed"),
            StageRecord(self.job_id, "typed", {"n": 1}, 1, 3, 0.5, 10.0, "typed.1"),
        )
        self.record(
            keys.stream(self.job_id, "hourly"), StreamRecord(self.job_id, "hourly", False, "p", "4")
        )

    def out(self, stage: str) -> Path:
        return self.storage.published(self.job_id, stage, temporary=False)

    def record(self, key: str, value: Stored) -> None:
        self.backend.commit(Create(key, encode(value)))

    def run(self, batches: int = 1) -> FakeJob:
        self.query.run(batches)
        last = self.query.batch + 1
        file_sink(self.out("hourly"), last, start=last - batches)
        return self

    def suspend(self) -> FakeJob:
        self.record(keys.ATTEMPTS + self.job_id, AttemptRecord(self.job_id, first_started_at=1.0))
        stop = StopRecord(self.job_id, StopMode.SUSPEND, StopState.DONE)
        self.record(keys.STOPS + self.job_id, stop)
        return self


def tree(top: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Return the files below a folder and what is in them."""
    found = {}
    for where, inner, files in os.walk(top):
        inner[:] = [name for name in inner if name not in without]
        for name in files:
            path = Path(where, name)
            found[path.relative_to(top).as_posix()] = path.read_bytes()
    return found
