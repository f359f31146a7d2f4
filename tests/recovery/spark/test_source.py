"""Reading output with format("jrs"), as far as that needs no JVM."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore import store as stores
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import DoubleType, LongType, StringType, StructType, TimestampType

import jrs
from jrs.recovery.inspect import output_files
from jrs.recovery.spark import source
from jrs.recovery.spark.sink import JrsSink
from jrs.recovery.spark.source import OutputReader, Part, check_columns, schema_of

WHICH = {"backend": "file:///nowhere", "job": "live", "stage": "words"}


@attrs.define
class Output:
    """The files that count."""

    folder: Path
    paths: tuple[Path, ...] = ()
    asked: tuple[object, ...] = ()

    def write(self, name: str, **columns: list[object]) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
        self.paths = (*self.paths, path)


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Output:
    made = Output(tmp_path)

    def files(*which: object, **where: object) -> jrs.OutputFiles:
        made.asked = (*which, where)
        return jrs.OutputFiles(made.paths, folder=made.folder)

    monkeypatch.setattr(output_files, "files", files)
    return made


def rows(schema: StructType, options: Mapping[str, str] = WHICH) -> list[dict[str, object]]:
    """Return the rows that executors read, in order."""
    reader = JrsSink(dict(options)).reader(schema)
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in found for row in batch.to_pylist()]


def test_the_files_that_count_are_read(output: Output) -> None:
    """The batch of a stream is a column, like that of the folders."""
    output.write("batch=0/part-1.parquet", word=["wind", "rain"])
    output.write("batch=3/part-2.parquet", word=["snow"])
    schema = JrsSink(WHICH).schema()

    assert schema == StructType().add("word", StringType()).add("batch", LongType())
    assert rows(schema) == [
        {"word": "wind", "batch": 0},
        {"word": "rain", "batch": 0},
        {"word": "snow", "batch": 3},
    ]


def test_the_options_are_passed_on(output: Output) -> None:
    """They are those of `jrs.files`."""
    rows(StructType(), {**WHICH, "cluster": "night", "storage": "/srv"})

    where = {"cluster": "night", "storage": "/srv"}
    assert output.asked == ("file:///nowhere", "live", "words", where)


def test_the_files_are_chosen_once(output: Output) -> None:
    """All scans of a table read the same files, whatever is committed meanwhile."""
    output.write("batch=0/part-1.parquet", word=["wind"])
    table = JrsSink(WHICH)
    schema = table.schema()
    output.write("batch=1/part-2.parquet", word=["rain"])

    assert len(table.reader(schema).partitions()) == 1


def test_columns_that_changed(output: Output) -> None:
    """The newest file says which columns there are; an older one lacks some, or has others."""
    output.write("batch=0/part-1.parquet", word=["wind"], old=[1])
    output.write("batch=1/part-2.parquet", word=["rain"], new=[2])

    assert rows(JrsSink(WHICH).schema()) == [
        {"word": "wind", "new": None, "batch": 0},
        {"word": "rain", "new": 2, "batch": 1},
    ]


def test_columns_of_a_batch_stage_with_several_writes(output: Output) -> None:
    """Its files have no order: the columns of all writes are there, each once."""
    output.write("part-00000-aa-c000.snappy.parquet", A=[1], b=[2])
    output.write("part-00001-aa-c000.snappy.parquet", A=[3], b=[4])
    output.write("part-00001-bb-c000.snappy.parquet", a=[5], c=["x"])
    output.write("rest.parquet", d=[6.5])
    schema = JrsSink(WHICH).schema()

    assert schema.names == ["d", "a", "c", "b"]
    assert [list(row.values()) for row in rows(schema)] == [
        [None, 1, None, 2],
        [None, 3, None, 4],
        [None, 5, "x", None],
        [6.5, None, None, None],
    ]


def test_one_file_of_each_write_is_looked_at(output: Output) -> None:
    """All files that Spark writes at once have the same columns, and may be very many."""
    output.write("part-00000-aa-c000.snappy.parquet", a=[1])
    output.paths[0].write_bytes(b"damaged")
    output.write("part-00001-aa-c000.snappy.parquet", a=[3])

    assert JrsSink(WHICH).schema().names == ["a"]


def test_a_column_of_its_own_called_batch(output: Output) -> None:
    """It stays what it is."""
    output.write("batch=7/part-1.parquet", batch=["a"])
    schema = JrsSink(WHICH).schema()

    assert schema == StructType().add("batch", StringType())
    assert rows(schema) == [{"batch": "a"}]


def test_the_batch_next_to_a_column_of_another_case(output: Output) -> None:
    """A stream that began before such a column was refused has it: it is not the number."""
    output.write("batch=7/part-1.parquet", Batch=[100])
    schema = JrsSink(WHICH).schema()

    assert rows(schema) == [{"Batch": 100, "batch": 7}]
    assert rows(StructType().add("BATCH", LongType())) == [{"BATCH": 7}]
    output.paths = ()
    output.write("part-1.parquet", Batch=[100])
    assert rows(StructType().add("batch", LongType())) == [{"batch": 100}]


def test_types_are_those_that_spark_expects(output: Output) -> None:
    """Spark compares them exactly: a timestamp has its zone, and a number its width."""
    at = pa.array([0], pa.timestamp("ms", "Europe/Vienna"))
    output.write("batch=0/part-1.parquet", at=at, n=pa.array([1], pa.int32()))
    schema = StructType().add("at", TimestampType()).add("n", LongType())
    reader = JrsSink(WHICH).reader(schema)
    (batch,) = reader.read(reader.partitions()[0])

    assert batch.schema.types == [pa.timestamp("us", "UTC"), pa.int64()]


def test_a_table_that_spark_has_written(output: Output) -> None:
    """The columns are those that Spark has noted: Arrow reads its timestamps without their zone."""
    at = datetime(9999, 12, 31, tzinfo=UTC)
    noted = StructType().add("at", TimestampType()).add("n", LongType(), nullable=False)
    path = output.folder / "part-1.parquet"
    table = pa.table({"at": pa.array([at], pa.timestamp("us", "UTC")), "n": [1]})
    note = {"org.apache.spark.sql.parquet.row.metadata": noted.json()}
    pq.write_table(table.replace_schema_metadata(note), path, use_deprecated_int96_timestamps=True)
    output.paths = (path,)
    schema = JrsSink(WHICH).schema()

    assert schema == StructType().add("at", TimestampType()).add("n", LongType())
    assert rows(schema) == [{"at": at, "n": 1}]


def test_a_partitioned_table(output: Output) -> None:
    """Only Spark's own reader knows its columns."""
    refused = r"partitioned table: read it with spark\.read\.parquet"
    for folder in ("day=1", "country=DE/batch=3", "batch=3/country=DE", "batch=x"):
        output.paths = ()
        output.write(f"{folder}/part-1.parquet", order=[1])
        with pytest.raises(ValueError, match=refused):
            JrsSink(WHICH).schema()


def test_a_stage_with_several_tables(output: Output) -> None:
    """They are not mixed: one of them is chosen."""
    output.write("orders/part-1.parquet", order=[1])
    output.write("items/part-2.parquet", item=[2])

    with pytest.raises(ValueError, match=r"several tables: choose one, .*: items, orders"):
        JrsSink(WHICH).schema()
    chosen = {**WHICH, "folder": "items"}
    assert rows(JrsSink(chosen).schema(), chosen) == [{"item": 2}]


def test_tables_are_told_by_their_paths(output: Output) -> None:
    """Two of the same name are two; one that does not exist is no empty one."""
    output.write("eu/orders/part-1.parquet", eur=[1])
    output.write("us/orders/part-2.parquet", usd=[2])
    output.write("us/sums/day=1/part-3.parquet", usd=[2])

    with pytest.raises(ValueError, match=r"several tables: .*: eu/orders, us/orders, us/sums$"):
        JrsSink(WHICH).schema()
    chosen = {**WHICH, "folder": "us/orders/"}
    assert rows(JrsSink(chosen).schema(), chosen) == [{"usd": 2}]
    wrong = {**WHICH, "folder": "orders"}
    with pytest.raises(ValueError, match="no table in the folder 'orders'; it has: eu/orders, us"):
        rows(StructType().add("usd", LongType()), wrong)
    with pytest.raises(ValueError, match="partitioned table"):
        JrsSink({**WHICH, "folder": "us/sums"}).schema()


def test_columns_are_found_in_any_case(output: Output) -> None:
    """So Spark compares their names; one that can be two columns is refused."""
    output.write("batch=0/part-1.parquet", Word=["wind"])
    assert rows(StructType().add("word", StringType())) == [{"word": "wind"}]
    output.write("batch=1/part-2.parquet", Word=["rain"], WORD=["snow"])
    assert rows(StructType().add("WORD", StringType()))[1:] == [{"WORD": "snow"}]
    with pytest.raises(ValueError, match="'word' can be any of Word, WORD"):
        rows(StructType().add("word", StringType()))


def test_a_column_that_no_file_has(output: Output) -> None:
    """It would be null in each row; one that an older file has is read from that file."""
    output.write("batch=0/part-1.parquet", id=[1], Old=["x"])
    output.write("batch=1/part-2.parquet", id=[2], amount=[0.5])
    some = StructType().add("old", StringType()).add("amount", DoubleType())
    assert [list(row.values()) for row in rows(some)] == [["x", None], [None, 0.5]]
    assert rows(StructType().add("batch", LongType())) == [{"batch": 0}, {"batch": 1}]

    refused = r"no file of stage 'words' has a column 'amuont'; the newest has: id, amount$"
    with pytest.raises(ValueError, match=refused):
        rows(StructType().add("id", LongType()).add("amuont", DoubleType()))


def test_a_column_of_one_of_very_many_files(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where not all files are looked at, it is not known that none has a column: it is read."""
    monkeypatch.setattr(source, "_LOOKED_AT", 8)
    monkeypatch.setattr(source, "_SAMPLE", 2)
    for number in range(8):
        some: dict[str, list[object]] = {"promo": [7]} if number == 2 else {}
        output.write(f"batch={number}/part-1.parquet", id=[number], **some)
    schema = StructType().add("id", LongType()).add("promo", LongType())
    promos = [None, None, 7, None, None, None, None, None]
    assert [row["promo"] for row in rows(schema)] == promos

    output.write("batch=8/part-1.parquet", id=[8])
    looked = r"none of 2 files .* has a column 'promo', and the other 7 were not looked at: .* id$"
    with pytest.warns(UserWarning, match=looked):
        assert [row["promo"] for row in rows(schema)] == [*promos, None]


def test_few_files_are_searched_for_a_column(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the new files lack is found in some that are spread over all of them."""
    real, looked = source._columns_of, list[str]()

    def noted(part: Part, store: object) -> StructType:
        looked.append(part.name)
        return real(part, store)

    monkeypatch.setattr(source, "_columns_of", noted)
    for number in range(100):
        some: dict[str, list[object]] = {"old": ["x"]} if number < 60 else {}
        output.write(f"batch={number}/part-1.parquet", id=[number], **some)
    reader = JrsSink(WHICH).reader(StructType().add("id", LongType()).add("old", StringType()))

    assert isinstance(reader, OutputReader)
    assert len(looked) < 40


def test_very_many_writes_of_a_batch_stage(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have other columns: not all are looked at, and a warning says so."""
    monkeypatch.setattr(source, "_LOOKED_AT", 2)
    for name in ("a", "b", "c"):
        output.write(f"{name}.parquet", **dict[str, list[object]]({name: [1]}))

    with pytest.warns(UserWarning, match=r"3 files of different writes, .*: give \.schema\(…\)"):
        assert JrsSink(WHICH).schema().names == ["c", "a"]
    assert [row["b"] for row in rows(StructType().add("b", LongType()))] == [None, 1, None]


def test_a_type_that_does_not_fit(output: Output) -> None:
    """The column and its file are named."""
    output.write("batch=0/part-1.parquet", id=["x"])

    with pytest.raises(ValueError, match=r"'id' of .*part-1\.parquet is string and cannot be read"):
        rows(StructType().add("id", LongType()))


def test_the_columns_of_an_object(tmp_path: Path) -> None:
    """Only its end is read."""
    path = tmp_path / "o.parquet"
    pq.write_table(pa.table({f"column-{number:05}": [1] for number in range(2000)}), path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"damaged")
    part = Part("batch=0/o.parquet", path.as_uri(), size=size)

    assert len(schema_of([part]).names) == 2001


def test_objects_are_read_through_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each store makes connections of its own, and may ask for credentials of its own."""
    parts, real, opened = list[Part](), stores.from_url, list[str]()

    def noted(url: str, **options: Any) -> Any:
        opened.append(url)
        return real(url, **options)

    for number in range(40):
        path = tmp_path / f"{number}" / "o.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"word": ["wind"]}), path)
        size = path.stat().st_size
        parts.append(Part(f"batch={number}/o.parquet", path.as_uri(), size=size))
    monkeypatch.setattr(stores, "from_url", noted)
    schema = StructType().add("word", StringType())
    with pytest.raises(ValueError, match="has a column 'wrod'"):
        check_columns(parts, StructType().add("wrod", StringType()), "words")
    assert len(opened) == 1

    monkeypatch.setattr(source, "_MOST_TASKS", 1)
    reader = OutputReader(parts, schema)
    (task,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(task)) == 40
    assert len(opened) == 2


def test_no_files_yet(output: Output) -> None:
    """Without a file the columns are not known; with columns there are no rows."""
    with pytest.raises(ValueError, match="there are no files yet"):
        JrsSink(WHICH).schema()
    schema = StructType().add("word", StringType())
    assert rows(schema) == []
    reader = JrsSink(WHICH).reader(schema)
    for nothing in (None, InputPartition(None)):  # What versions of Spark then pass.
        assert list(reader.read(nothing)) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"job": "live", "stage": "words"}, "'backend' is missing"),
        ({**WHICH, "stage": ""}, "'stage' is missing"),
        ({**WHICH, "path": "/x"}, "no option is called 'path'"),
    ],
)
def test_bad_options(options: dict[str, str], message: str) -> None:
    """They are named, with those that there are."""
    with pytest.raises(ValueError, match=f"{message}; the options are backend, job, stage"):
        JrsSink(options).schema()


def test_what_only_a_stage_of_a_job_can_write() -> None:
    """One line says so, instead of an error of the sink's own code."""
    schema = StructType().add("word", StringType())
    for write in (JrsSink({}).streamWriter, JrsSink({}).writer):
        with pytest.raises(ValueError, match=r"writes only a stage of job\.stream"):
            write(schema, False)


def test_a_reader_is_one_of_spark(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is a partition; of very many, some next to each other are one."""
    output.write("batch=0/part-1.parquet", word=["wind"])
    output.write("batch=1/part-2.parquet", word=["rain"])
    reader = JrsSink(WHICH).reader(StructType().add("word", StringType()))

    assert isinstance(reader, OutputReader)
    assert named(reader) == [["part-1.parquet"], ["part-2.parquet"]]
    monkeypatch.setattr(source, "_MOST_TASKS", 2)
    output.write("batch=2/part-3.parquet", word=["snow"])
    reader = JrsSink(WHICH).reader(StructType().add("word", StringType()))
    assert isinstance(reader, OutputReader)
    assert named(reader) == [["part-1.parquet", "part-2.parquet"], ["part-3.parquet"]]
    assert [row["word"] for row in rows(JrsSink(WHICH).schema())] == ["wind", "rain", "snow"]


def named(reader: OutputReader) -> list[list[str]]:
    return [[Path(name).name for name, *_ in part.value] for part in reader.partitions()]


@attrs.define(eq=False)
class Session:
    """A stand-in for a SparkSession, of which only the registrations count."""

    registered: list[type] = attrs.Factory(list)

    @property
    def dataSource(self) -> SimpleNamespace:
        return SimpleNamespace(register=self.registered.append)


def test_a_session_gets_to_know_the_format_once() -> None:
    """Spark warns of each further registration."""
    one, other = Session(), Session()
    for session in (one, other, one):
        jrs.register_format(session)  # type: ignore[arg-type]

    assert one.registered == other.registered == [JrsSink]
