"""For any bytes, a parser returns a value or raises the one error of the room, and nothing else."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jrs.recovery.checkpoint_format import (
    commit_log,
    file_logs,
    metadata,
    offset_log,
    relocation,
    sink_log,
    state_files,
)
from jrs.recovery.checkpoint_format.checkpoint import is_computed, select
from jrs.recovery.checkpoint_format.position import position, read_plan, state_plan
from jrs.recovery.checkpoint_format.unreadable import UnreadableCheckpoint

from .fixtures import BATCHES, MADE

WHERE = Path("/somewhere/6")
DEEP = "[" * 100_000


@attrs.frozen
class Parser:
    """A parser, and real files that it reads."""

    name: str
    parse: Callable[[bytes, Path], Any]
    files: str

    def __str__(self) -> str:
        return self.name

    def real(self) -> list[bytes]:
        return [path.read_bytes() for made in MADE for path in sorted(made.folder.glob(self.files))]


def metadata_in(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read("metadata")


ZIPS = "ck/state/0/*/*.zip"
PARSERS = [
    Parser("metadata", metadata.parse, "ck/metadata"),
    Parser("offsets", offset_log.parse, "ck/offsets/*"),
    Parser("commits", commit_log.parse, "ck/commits/*"),
    Parser("sources", file_logs.parse_source, "ck/sources/*/*"),
    Parser("sink", file_logs.parse_sink, f"out/hourly/{sink_log.SINK_LOG}/*"),
    Parser("zip", state_files.parse_zip, ZIPS),
]
TEXTS = [*PARSERS[:-1], Parser("in a zip", state_files.parse_metadata, "")]
REAL = {each.name: each.real() for each in PARSERS}
REAL["in a zip"] = [metadata_in(path) for made in MADE for path in sorted(made.folder.glob(ZIPS))]


def parse(parser: Parser, data: bytes) -> Any:
    """Return the parser's value; None for its error, which has to name the file."""
    try:
        found = parser.parse(data, WHERE)
    except UnreadableCheckpoint as error:
        if str(WHERE) not in str(error):
            raise
        return None
    if isinstance(found, file_logs.FileLog):
        for file in found.named:
            assert file.path.startswith("/")
            assert "\0" not in file.path
            assert file.path.encode()
    return found


@st.composite
def damaged(draw: st.DrawFn, real: list[bytes]) -> bytes:
    """Draw a real file with damage: bits flipped, bytes cut or added, lines or values exchanged."""
    data = bytearray(draw(st.sampled_from(real)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        how = draw(st.sampled_from(["flip", "cut", "drop", "insert", "swap", "replace"]))
        if how == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del data[at:]
        elif how == "drop":
            del data[at : at + draw(st.integers(1, 20))]
        elif how == "insert":
            data[at:at] = draw(st.binary(max_size=8) | st.sampled_from(SURPRISES))
        elif how == "swap":
            lines = bytes(data).split(b"\n")
            one, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            lines[one], lines[other] = lines[other], lines[one]
            data = bytearray(b"\n".join(lines))
        elif how == "replace":
            # A value of JSON by another.
            values = list(re.finditer(rb'(?<=:)("[^"]*"|[0-9]+|\{\}|true)', bytes(data)))
            if values:
                value = draw(st.sampled_from(values))
                data[value.start() : value.end()] = draw(st.sampled_from(SURPRISES))
    return bytes(data)


SURPRISES = [
    *(b"null", b"true", b"[]", b"{}", b"-1", b"1e999", b"NaN", b'""', b'"\\ud800"', b'"\\u0000"'),
    *(b'"%00"', b'"file:///a%00b"', b'"file:///\\udc80"', b'"a/b"', b'".."', b'"//"', b"\xff"),
    *(b"9" * 30, b"9" * 5000, b"\n", b"\r\n", "²".encode(), b"[[1]]", b'{"0":[[null]]}'),
    DEEP.encode(),
]


@pytest.mark.parametrize("parser", [*PARSERS, TEXTS[-1]], ids=str)
@given(data=st.binary() | st.text().map(str.encode))
@example(b"")
@example(b"v1")
@example(b"v1\n")
@example(b"v1\n\n")
@example(b"\n")
@example(b"v2\n{}\n-")
@example(b"v1\n" + DEEP.encode())
@example(b"v1\n{}\n" + DEEP.encode())
@example(b'v1\n{"a":' + DEEP.encode())
@example(b'v1\n{"batchWatermarkMs":true}')
@example(b'v1\n{"path":"relative"}')
@example(b'v1\n{"path":"file:///a%00b"}')
@example(b'v1\n{"path":"file:///\\udc80"}')
@example(b'{"id":7}')
@example(b"\xef\xbb\xbfv1\n{}")
@example(b"v" + b"9" * 5000)
def test_any_bytes(parser: Parser, data: bytes) -> None:
    parse(parser, data)


@pytest.mark.parametrize("parser", [*PARSERS, TEXTS[-1]], ids=str)
@given(draw=st.data())
def test_damaged_files(parser: Parser, draw: st.DataObject) -> None:
    parse(parser, draw.draw(damaged(REAL[parser.name])))


@given(name=st.text() | st.from_regex(r"[0-9]+(_[0-9a-f-]{36})?\.(delta|zip|changelog|x)"))
@example("²")
@example("9" * 5000 + ".zip")
@example("1.zip\n")
def test_any_name_of_a_file_of_state(name: str) -> None:
    found = state_files.parse_name(name)

    assert found is None or found.name == name


# -- what is also written ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metadata", "offsets"])
@given(draw=st.data())
def test_written_as_it_was_read(name: str, draw: st.DataObject) -> None:
    """What a parser has accepted, damaged or not, is the same when written and read again."""
    (parser,) = (each for each in PARSERS if each.name == name)
    data = draw.draw(st.sampled_from(REAL[name]) | damaged(REAL[name]))
    found = parse(parser, data)

    assert found is None or parse(parser, found.text().encode()) == found


@given(
    data=st.sampled_from(REAL["offsets"]) | damaged(REAL["offsets"]),
    watermark=st.integers(0, 2**62),
)
def test_planned_at_another_watermark(data: bytes, watermark: int) -> None:
    """Nothing else in the plan changes, whether jrs knows it or not."""
    before = parse(PARSERS[1], data)
    if before is None:
        return
    after = parse(PARSERS[1], before.at(watermark, 7).text().encode())
    bodies = [json.loads(each.text().split("\n")[1]) for each in (before, after)]
    for body in bodies:
        body["batchWatermarkMs"] = body["batchTimestampMs"] = None

    assert after == before.at(watermark, 7)
    assert after.watermark == watermark
    assert (after.version, after.conf, after.sources) == (
        *(before.version, before.conf, before.sources),
    )
    assert repr(bodies[0]) == repr(bodies[1])


NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=10
).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))


@given(old=PATHS, new=PATHS, below=PATHS, sink=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_relocated(tmp_path: Path, old: str, new: str, below: str, sink: bool) -> None:
    """The entry of a file, whatever its name, becomes that of the file in the other place."""
    log = tmp_path / (sink_log.SINK_LOG if sink else "0") / "6"
    log.parent.mkdir(exist_ok=True)
    uri = f"file://{relocation._quoted(old + below)}"
    entry = json.dumps({"path": uri, "size": 1, "isDir": False, "action": "add"})
    other = json.dumps({"path": "file:///elsewhere/x", "action": "add"})
    log.write_text("\n".join(["v1", entry, other]), encoding="utf-8")
    read = file_logs.read_sink if sink else file_logs.read_source

    assert next(each.path for each in read(log).named) == old + below

    relocation.relocate(log, old, new)
    moved, elsewhere = read(log).named
    moved_on = {**json.loads(moved.line), "path": uri}

    assert moved.path == new + below
    assert elsewhere.line == other
    assert json.dumps(moved_on) == entry
    assert relocation.folders_in(log) == {Path(new + below).parent, Path("/elsewhere")}


# -- whole checkpoints -------------------------------------------------------------------------


@pytest.fixture(scope="module", params=MADE, ids=str)
def copy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("copy") / "copy"
    shutil.copytree(request.param.folder, target)
    return target


@given(draw=st.data())
@settings(max_examples=40, deadline=None)
def test_a_damaged_checkpoint(copy: Path, draw: st.DataObject) -> None:
    """Each question about it has an answer, the room's error, or that of a missing file."""
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    path = draw.draw(st.sampled_from(files))
    before = path.read_bytes()
    path.write_bytes(draw.draw(damaged([before])))
    log = copy / "out" / "hourly" / sink_log.SINK_LOG
    ck = copy / "ck"
    questions: list[Callable[[], object]] = [
        lambda: select(ck),
        lambda: select(ck, 2),
        lambda: is_computed(ck, BATCHES - 1),
        lambda: position(ck),
        lambda: state_plan(ck),
        lambda: list(sink_log.counted(log.parent)),
        lambda: list(sink_log.removable(log.parent)),
        lambda: list(sink_log.files_until(log, BATCHES - 1)),
    ]
    try:
        for ask in questions:
            try:
                ask()
            except (UnreadableCheckpoint, FileNotFoundError):
                pass
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EIO, UnreadableCheckpoint),
        (errno.ENOENT, UnreadableCheckpoint),
        (errno.EMFILE, OSError),
        (errno.ESTALE, OSError),
    ],
)
def test_what_cannot_be_read_now(
    copy: Path, number: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk has lost is damage; what it does not give now is not."""

    def fail(path: Path) -> bytes:
        raise OSError(number, os.strerror(number), str(path))

    table = copy / "out" / "hourly"
    monkeypatch.setattr(Path, "read_bytes", fail)
    questions: list[Callable[[], object]] = [
        lambda: read_plan(copy / "ck", BATCHES - 1),
        lambda: list(sink_log.counted(table)),
        lambda: list(sink_log.removable(table)),
    ]
    for ask in questions:
        with pytest.raises(error):
            ask()
