"""Blocks of the documentation that need Spark, in clusters that have the jobs which they name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent

import pytest

import jrs
from jrs.records import keys
from jrs.testing.masters import Masters
from jrs.testing.servers.etcd import EtcdServer
from tests.docs import session
from tests.docs.test_docs import BLOCKS, marked
from tests.s3 import BUCKET, serving
from tests.support import environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BOUND = 300.0
WAREHOUSE = "/warehouse/delays"

ETL = """
import jrs


def etl(job: jrs.Job) -> None:
    def read(stage):
        return stage.spark.readStream.text(stage.files("/data/in")).writeStream.format("jrs")

    hourly = job.stream("hourly", read, bounded=True)
"""
"""The job that the blocks belong in. It also has the first one of two published streams."""

READER = """
import json
import os
import sys

from pyspark.sql import SparkSession

import jrs

os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
"""
"""What comes before the blocks that read."""


@contextmanager
def running(url: str, storage: str, folder: Path, blocks: list[str]) -> Iterator[Masters]:
    """Run the job `live` of these blocks, until both of its streams have committed a batch."""
    text = ETL + "".join(indent(block, " " * 4) for block in blocks)
    (folder / "in").mkdir()
    (folder / "in" / "lines.txt").write_text("wind\nrain\n")
    (folder / "etl.py").write_text(localized(text, folder))
    with Masters(url, storage=storage) as masters, jrs.connect(url) as client:
        masters.start("m1")
        client.submit(f"{folder / 'etl.py'}:etl", id="live")
        heads = [keys.head("live", stage) for stage in ("hourly", "words")]
        masters.until(lambda: all(masters.backend.get_many(heads)), "both have a batch", BOUND)
        yield masters


def drain(url: str) -> None:
    """End the job: its unbounded stream, and then the publication, which waits for both."""
    with jrs.connect(url) as client:
        client.job("live").drain()
        assert client.job("live").result(timeout=BOUND).status is jrs.JobStatus.FINISHED


def localized(text: str, folder: Path) -> str:
    """Return a text with the reader's folders inside of `folder`."""
    return text.replace('"/data/', f'"{folder}/').replace(f'"{WAREHOUSE}', f'"{folder}/warehouse')


def read(blocks: list[str], folder: Path, found: str) -> tuple[str, dict[str, object]]:
    """Run blocks in one session; return what they print, and what is `found` behind them."""
    program = folder / "reading.py"
    program.write_text("\n".join([READER, *blocks, f"print(json.dumps({found}))"]))
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(session.ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    assert done.returncode == 0, done.stderr
    printed, _, last = done.stdout.rstrip("\n").rpartition("\n")
    return printed, json.loads(last)


def test_the_jrs_sink_and_the_tables(tmp_path: Path) -> None:
    """A stream writes by the sink; its files, and the tables of its cluster, are read meanwhile;
    then it is published."""
    words, follow, load, publish = marked("exactly-once.md")
    results, stages, history = marked("tables.md")
    url = (tmp_path / "store").as_uri()
    (tmp_path / "warehouse").mkdir()
    blocks = [
        "cursor, loaded = '', []\nload = loaded.append",
        follow, follow, load, results, stages, history, "query.processAllAvailable()",
    ]  # fmt: skip
    blocks = [localized(one.replace("file:///var/lib/jrs", url), tmp_path) for one in blocks]
    found = """{
        "loaded": len(loaded), "cursor": cursor,
        "words": sorted(row.value for row in words.collect()),
        "events": sorted({row.kind for row in spark.read.parquet("HISTORY").collect()}),
    }""".replace("HISTORY", str(tmp_path / "history"))
    with running(url, str(tmp_path / "files"), tmp_path, [words, publish]):
        printed, seen = read(blocks, tmp_path, found)
        drain(url)

    assert seen["loaded"] == 1, "the second look with the cursor finds nothing new"
    assert seen["words"] == ["rain", "wind"]
    assert {"elected", "attempt"} <= set(seen["events"])  # type: ignore[call-overload]
    assert "|code|status|count|" in printed
    assert "|job_id|stage|" in printed
    published = tmp_path / "warehouse" / "2026-11-20"
    assert sorted(path.name for path in published.iterdir()) == ["hourly", "words"]


def test_objects(etcd_server: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on etcd and a bucket; what was published is read without jrs."""
    reading, publish, without_jrs = marked("objects.md")
    words = marked("exactly-once.md")[0]
    [described] = (block.text for block in BLOCKS if block.text.startswith('{\n "format"'))
    url = etcd_server.url()
    monkeypatch.setenv("JRS_WORK", str(tmp_path / "work"))
    with serving(tmp_path / "s3.log") as s3:
        with running(url, s3.url(), tmp_path, [words, publish]):
            drain(url)
        # Where obstore alone finds the server.
        server = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3.port}", "AWS_REGION": "us-east-1"}
        with environment({**server, "AWS_ALLOW_HTTP": "true"}):
            printed, seen = read(
                ["jrs.register_format(spark)", reading.replace("etcd://h1,h2,h3/jrs", url),
                 without_jrs],
                tmp_path,
                '{"rows": sorted(row.value for row in rows.collect()), "pointer": pointer}',
            )  # fmt: skip

    pointer = seen["pointer"]
    assert isinstance(pointer, dict)
    assert seen["rows"] == ["rain", "wind"]
    assert f"s3://{BUCKET}/" in printed
    assert pointer.keys() == json.loads(described).keys()
    assert {name.partition("/")[0] for name in (file["name"] for file in pointer["files"])} == {
        "hourly",
        "words",
    }
