"""Reading a stage's output with ``spark.read.format("jrs")``: the files that count.

The files are chosen where Spark plans the query, on the driver, which needs jrs. Executors get this
module by value, as they get the sink (see `by_value`); they need pyspark and pyarrow, and see the
jobs' files. If these are objects, they need obstore, and credentials of their own.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise, takewhile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructType

if TYPE_CHECKING:
    import pyarrow as pa

# Imported inside functions: pyarrow, pyspark.sql.pandas, since each commit of a stream is a new
# process, which gets this module with the sink.
# Imported inside functions: obstore, since few outputs are objects.

_NEEDED = ("backend", "job", "stage")
_OPTIONS = (*_NEEDED, "cluster", "storage", "folder")
_BATCH = re.compile(r"batch=([0-9]+)")
_OF_ONE_WRITE = re.compile(r"part-[0-9]+(-.+)-c[0-9]+\.")
"""The name that Spark gives a file: the task's number, what all files of one write share, and the
number of the task's file."""
_AT_ONCE = 16
"""Files whose columns are read at a time."""
_MOST_TASKS = 10_000
"""Partitions of one read."""
_FOOTER = 64 * 1024
"""Bytes at the end of an object in which the columns are looked for at first."""
_LOOKED_AT = 1000
"""The most files of a stage whose columns are all looked at."""
_SAMPLE = 64
"""Files, spread over all of them, that are searched for a column at first; of more than
`_LOOKED_AT`, alone."""
_OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark notes the columns of a Parquet file: Arrow reads some of their types differently."""
BATCH = "batch"
"""The column with the number of a stream's batch."""


class Part(NamedTuple):
    """One Parquet file."""

    name: str
    """Its path, or its path in the output if it is an object."""
    url: str = ""
    """Of the object; empty if it is a file that executors see."""
    options: str = ""
    """How its store is reached, as the query of a URL. Credentials are the executor's own."""
    size: int = 0
    """Of the object, in bytes."""


class _Files(InputPartition):
    """Parts that one task reads, as Spark sends them."""


class OutputReader(DataSourceReader):
    """Reads Parquet files, each as one partition; of very many, some next to each other are one."""

    def __init__(self, parts: Sequence[Part], schema: StructType) -> None:
        self._parts = parts
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        # A stream of months has a million files, and each task takes its time.
        of_each = math.ceil(len(self._parts) / _MOST_TASKS) or 1
        firsts = range(0, len(self._parts), of_each)
        return [_Files(tuple(map(tuple, self._parts[at : at + of_each]))) for at in firsts]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition with the columns of the schema; runs in an executor."""
        if partition is None or partition.value is None:
            return  # What Spark passes where there are no partitions.
        parts = [Part(*one) for one in partition.value]
        store = _store_of(parts)
        for part in parts:
            yield from self._rows(part, store)

    def _rows(self, part: Part, store: Any) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        wanted = _arrow(self._schema)
        batch = _batch_of(part.name)
        with pq.ParquetFile(_opened(part, store), coerce_int96_timestamp_unit="us") as file:
            names, of_stream = file.schema_arrow.names, batch is not None
            stored = {one.name: _stored(one.name, names, of_stream=of_stream) for one in wanted}
            present = sorted({name for name in stored.values() if name is not None})
            for rows in file.iter_batches(columns=present):
                columns = []
                for field in wanted:
                    if (name := stored[field.name]) is not None:
                        columns.append(_cast(rows.column(name), field, part))
                    else:
                        value = batch if field.name.lower() == BATCH else None
                        columns.append(pa.array([value] * rows.num_rows, field.type))
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _cast(column: pa.Array, field: pa.Field, part: Part) -> pa.Array:
    import pyarrow as pa

    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"the column {field.name!r} of {part.url or part.name} is {column.type} and cannot be "
            f"read as {field.type}: {error}"
        ) from None


def schema_of(parts: Sequence[Part]) -> StructType:
    """Return the columns of the newest file of a stream, with the batch as a column; those of all
    files of a batch stage, with the types of the last file that has them.

    Every column may be null, as in Spark's own sources: other files may lack it.

    Raises:
        ValueError: there is no file.
    """
    if not parts:
        raise ValueError("there are no files yet, so the columns are not known: give .schema(…)")
    of_stream = _batch_of(parts[-1].name) is not None
    looks = parts[-1:] if of_stream else _of_each_write(parts)
    if len(looks) > _LOOKED_AT:
        warnings.warn(
            f"the output has {len(looks):,} files of different writes, and columns are looked for "
            f"in at most {_LOOKED_AT:,}: give .schema(…) if one is missing",
            stacklevel=2,
        )
        looks = looks[:: math.ceil(len(looks) / _LOOKED_AT)]
    nullable, names = StructType(), set[str]()
    for found in _columns(looks, _store_of(looks)):
        new = [field for field in found.fields if field.name.lower() not in names]
        names.update(field.name.lower() for field in new)
        for field in new:
            nullable = nullable.add(field.name, field.dataType, nullable=True)
    if of_stream and BATCH not in nullable.names:
        nullable = nullable.add(BATCH, LongType())
    return nullable


def check_columns(parts: Sequence[Part], schema: StructType, stage: str) -> None:
    """Raise `ValueError` if a user names a column that no file has: each row would have null.

    Warn if it is not known, since there are too many files to look at all of them.
    """
    if not parts:
        return
    of_stream = _batch_of(parts[-1].name) is not None
    every = parts[::-1] if of_stream else _of_each_write(parts)
    # Nearly always the newest file has all columns. A column that came or went has many files
    # that have it next to each other, so that some of all ages are looked at before the others.
    apart = math.ceil(len(every) / _SAMPLE)
    looks = list(every[::apart])
    if len(every) <= _LOOKED_AT:
        looks += [part for at, part in enumerate(every) if at % apart]
    store = _store_of(looks)
    known: list[str] = []
    sought = {name for name in schema.names if not (of_stream and name.lower() == BATCH)}
    for first, end in pairwise((0, *range(1, len(looks), _AT_ONCE), len(looks))):
        if not sought:
            return
        for found in _columns(looks[first:end], store):
            known = known or found.names
            sought -= {name for name in sought if _stored(name, found.names, of_stream=False)}
    if not sought:
        return
    what, newest = f"has a column {min(sought)!r}", f"the newest has: {', '.join(known)}"
    if len(looks) == len(every):
        raise ValueError(f"no file of stage {stage!r} {what}; {newest}")
    warnings.warn(
        f"none of {len(looks)} files of stage {stage!r} {what}, and the other "
        f"{len(every) - len(looks):,} were not looked at: it is null in each file that lacks it; "
        f"{newest}",
        stacklevel=2,
    )


def _of_each_write(parts: Sequence[Part]) -> list[Part]:
    """Return a file of each write of Spark's, and all other files; the last one first."""
    chosen: dict[str, Part] = {}
    for part in reversed(parts):
        found = _OF_ONE_WRITE.match(Path(part.name).name)
        chosen.setdefault(found[1] if found else part.name, part)
    return list(chosen.values())


def _columns(parts: Sequence[Part], store: Any) -> Iterator[StructType]:
    """Yield the columns of files, in the order of the files."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(partial(_columns_of, store=store), parts)


def _columns_of(part: Part, store: Any) -> StructType:
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import from_arrow_schema

    stored = pq.read_schema(_footer(part, store))
    described = (stored.metadata or {}).get(_OF_SPARK)
    if described is not None:
        return StructType.fromJson(json.loads(described))
    return from_arrow_schema(stored, prefer_timestamp_ntz=True)


def parts_of(options: Mapping[str, str]) -> list[Part]:
    """Return the files that count now; runs on the driver's side."""
    unknown = sorted({name.lower() for name in options}.difference(_OPTIONS))
    missing = [name for name in _NEEDED if not options.get(name)]
    if unknown or missing:
        what = f"no option is called {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
        raise ValueError(f"format('jrs'): {what}; the options are {', '.join(_OPTIONS)}")
    from ..inspect.output_files import files  # Executors may not have it.

    stage, below = options["stage"], options.get("folder")
    found = files(
        options["backend"],
        options["job"],
        stage,
        cluster=options.get("cluster", "default"),
        storage=options.get("storage"),
    )
    tables = list(map(_table_of, found.names))
    if found.objects:
        every = [Part(one.name, one.url, one.options, one.size) for one in found.objects]
    else:
        every = [Part(str(path)) for path in found.paths]
    known = ", ".join(sorted(set(tables))[:5])
    wanted = None if below is None else PurePosixPath(below).as_posix()
    if wanted is not None and tables and wanted not in tables:
        raise ValueError(f"stage {stage!r} has no table in the folder {below!r}; it has: {known}")
    if wanted is None and len(set(tables)) > 1:
        raise ValueError(
            f"stage {stage!r} has several tables: choose one, with option('folder', …): {known}"
        )
    chosen = zip(every, found.names, tables, strict=True)
    parts = [(part, name) for part, name, table in chosen if wanted in (None, table)]
    if any(_is_partitioned(name) for _, name in parts):
        raise ValueError(
            f"stage {stage!r} has a partitioned table: read it with spark.read.parquet(…)"
        )
    return [part for part, _ in parts]


def _stored(name: str, names: Sequence[str], *, of_stream: bool) -> str | None:
    """Return the column of a file that has a name, in any case as in Spark; None if it has none.

    Args:
        of_stream: whether the file is of a stream: the number of its batch comes before a column
            whose name has another case.
    """
    if name in names:
        return name
    if of_stream and name.lower() == BATCH:
        return None
    found = [one for one in names if one.lower() == name.lower()]
    if len(found) > 1:
        raise ValueError(f"the column {name!r} can be any of {', '.join(found)}")
    return found[0] if found else None


def _opened(part: Part, store: Any) -> Any:
    """Return what pyarrow reads: a path, or the content of an object, which is read whole."""
    if not part.url:
        return part.name
    import pyarrow as pa

    name = _name_in_store(part)
    return pa.BufferReader(bytes(store.get(name).bytes()))


def _footer(part: Part, store: Any) -> Any:
    """Return from what pyarrow reads the columns alone: of an object, as few bytes as it needs."""
    if not part.url:
        return part.name
    import pyarrow as pa

    name = _name_in_store(part)
    size = min(_FOOTER, part.size)
    end = bytes(store.get_range(name, start=part.size - size, end=part.size))
    # A Parquet file ends with what describes it, the length of that, and four letters.
    needed = int.from_bytes(end[-8:-4], "little") + 8
    if size < needed <= part.size:
        end = bytes(store.get_range(name, start=part.size - needed, end=part.size))
    return pa.BufferReader(end)


def _store_of(parts: Sequence[Part]) -> Any:
    """Return the store that parts of one output are in; None if they are files.

    It is opened once for all of them: each one makes connections, and may ask for credentials, of
    its own.
    """
    if not parts or not parts[0].url:
        return None
    from obstore.store import from_url

    options = dict(parse_qsl(parts[0].options))
    insecure = options.get("endpoint", "").startswith("http://")
    scheme, _, bucket, *_ = parts[0].url.split("/", 3)
    opening: Any = from_url
    return opening(f"{scheme}//{bucket}/", client_options={"allow_http": insecure}, **options)


def _name_in_store(part: Part) -> str:
    """Return the name that an object has in its bucket: obstore unquotes the path of a URL, too."""
    return unquote(part.url.split("/", 3)[3])


def _table_of(name: str) -> str:
    """Return the folder of the table that a file of an output is in, without the folders of its
    partitions or batches; ``.`` for the output itself."""
    folders = PurePosixPath(name).parent.parts
    return PurePosixPath(*takewhile(lambda one: "=" not in one, folders)).as_posix()


def _is_partitioned(name: str) -> bool:
    """Return whether a file's folders hold columns other than the batch."""
    folders = [one for one in PurePosixPath(name).parent.parts if "=" in one]
    return bool(folders) and (len(folders) > 1 or _batch_of(name) is None)


def _batch_of(name: str) -> int | None:
    """Return the number of the batch that a file belongs to; None for a file of no stream."""
    found = _BATCH.fullmatch(Path(name).parent.name)
    return int(found[1]) if found else None


def _arrow(schema: Any) -> pa.Schema:
    """Return a schema as Spark expects it of a reader, in each of its versions."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        return to_arrow_schema(schema)
