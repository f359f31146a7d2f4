"""What Spark's Python workers need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructType

from jrs.contract.runtime import RUNTIME
from jrs.recovery.spark.by_value import sink_by_value
from jrs.recovery.spark.commits import Commits
from jrs.recovery.spark.sink import JrsSink
from jrs.recovery.spark.sink_server import SinkServer
from jrs.recovery.spark.source import OutputReader, Part

WORKER = """
import sys
from pathlib import Path
sys.modules["jrs"] = None  # Every import of it fails.
import pyarrow as pa
from pyspark import cloudpickle

sink = cloudpickle.loads(sys.stdin.buffer.read())
writer = sink.streamWriter(None, False)
rows = pa.RecordBatch.from_pydict({"word": ["wind", "rain"]})
message = writer.write(iter([rows]))
for part in (writer, message):  # Spark sends them apart, too.
    pickled = cloudpickle.dumps(part)
    sys.stdout.buffer.write(len(pickled).to_bytes(4, "big") + pickled)
"""
COMMITTER = """
import sys
sys.modules["jrs"] = None
from pyspark import cloudpickle

read = sys.stdin.buffer.read
writer, message = (cloudpickle.loads(read(int.from_bytes(read(4), "big"))) for _ in range(2))
writer.commit([message, None], 7)
assert "pyarrow" not in sys.modules  # Spark starts a process for each commit.
"""


READER = """
import sys
sys.modules["jrs"] = None
from pyspark import cloudpickle

reader = cloudpickle.loads(sys.stdin.buffer.read())
(part,) = reader.partitions()
(rows,) = cloudpickle.loads(cloudpickle.dumps(reader)).read(part)
assert rows.to_pylist() == [{"word": "wind"}, {"word": "rain"}], rows
"""


class Recorder:
    """Notes what would be committed."""

    def __init__(self) -> None:
        self.committed: list[tuple[int, Sequence[str]]] = []

    def commit(self, batch: int, files: Sequence[str], run: str = "") -> None:
        self.committed.append((batch, files))


def test_c2_workers_need_no_jrs(tmp_path: Path) -> None:
    """C2: the sink plans, writes and commits a batch in processes that cannot import jrs."""
    recorder = Recorder()
    failures: list[BaseException] = []
    server = SinkServer(RUNTIME, Commits(failures.append, print))
    server.add("sums", recorder)
    with sink_by_value():
        made = JrsSink(
            {"staging": str(tmp_path), "stage": "sums", "run": "1", "address": server.address}
        )
        sent = cloudpickle.dumps(made)  # type: ignore[no-untyped-call]
    try:
        assert python(COMMITTER, python(WORKER, sent)) == b""
    finally:
        server.close()

    ((batch, (name,)),) = recorder.committed
    assert (batch, failures) == (7, [])
    assert pq.ParquetFile(tmp_path / name).read() == pa.table({"word": ["wind", "rain"]})


def python(code: str, given: bytes) -> bytes:
    ended = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout


def test_c2_readers_need_no_jrs(tmp_path: Path) -> None:
    """C2: executors read the files that were chosen in processes that cannot import jrs."""
    path = tmp_path / "part-1.parquet"
    pq.write_table(pa.table({"word": ["wind", "rain"]}), path)
    with sink_by_value():
        made = OutputReader([Part(str(path))], StructType().add("word", StringType()))
        sent = cloudpickle.dumps(made)  # type: ignore[no-untyped-call]

    assert python(READER, sent) == b""
