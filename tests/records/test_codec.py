"""Every stored type: there and back, and every way to mutilate it."""

import json
import math
import re
import zlib
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jrs.contract import masks
from jrs.contract.errors import CorruptRecord, UnsupportedVersion
from jrs.records import (
    applications,
    cluster,
    codec,
    exports,
    heads,
    history,
    lineage,
    model,
    objects,
    obstacles,
    policies,
    snapshots,
)
from jrs.records.cluster import MAX_EPOCH
from jrs.records.on_result import OnResult
from jrs.records.settings import JobSettings

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
job_ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True)
seconds = st.floats(0, 2**33)
whole = st.integers(0, 2**63)
failures = st.builds(model.Failure, st.text(), st.text(), st.text(), st.none() | st.integers())
summaries = st.builds(model.StageSummary, st.text(), whole, whole, seconds)
unknown = st.none() | whole
reports = st.builds(
    heads.BatchReport, whole, seconds, st.none() | st.builds(
        heads.StreamProgress, whole, seconds, unknown, st.none() | seconds, st.none() | seconds,
        st.none() | seconds, st.none() | seconds, unknown, unknown, unknown, unknown,
    ),
)  # fmt: skip
terminal = st.sampled_from([s for s in model.JobStatus if s.is_globally_terminal])

formats = st.sampled_from(snapshots.SnapshotFormat)
keeps = st.sampled_from(policies.Keep)
pinned = st.lists(
    st.builds(snapshots.SnapshotStage, st.text(), st.none() | whole, st.none() | st.text()),
    max_size=3,
).map(tuple)
files = st.builds(snapshots.SnapshotFile, st.text(), whole, st.text(), whole, whole)

mains = st.builds(
    applications.ApplicationRecord, job_ids, st.text(),
    st.dictionaries(st.text(), json_values, max_size=3), st.text(), seconds, whole, error=st.text(),
)  # fmt: skip

names = st.from_regex(r"[a-z]{1,9}/data/[a-z0-9]{1,9}/[a-z0-9]{1,9}", fullmatch=True)
digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
paths = st.from_regex(r"[a-z=]{1,9}(/[a-z0-9]{1,9}){0,2}", fullmatch=True)
stored = st.builds(objects.StoredObject, names, whole, digests)
stored_files = st.lists(
    st.builds(objects.StoredFile, paths, names, whole, digests, whole), max_size=3
).map(tuple)
earlier = st.lists(st.builds(objects.EarlierBatches, whole, whole, whole, stored), max_size=3).map(
    tuple
)
by_name = st.dictionaries(st.text(), stored, max_size=3)

events = st.builds(
    history.HistoryEvent, job_ids, st.text(), st.text(), seconds, st.text(), st.text(), whole,
    whole, st.text(), whole, st.none() | st.dictionaries(st.text(), json_values, max_size=3),
    st.text(), whole=st.none() | st.builds(history.WholeEvent, st.text(), st.text(), st.text()),
)  # fmt: skip

STORED: dict[type, st.SearchStrategy[Any]] = {
    history.ClusterHistory: st.builds(
        history.ClusterHistory, st.lists(events, max_size=2).map(tuple), whole
    ),
    history.HistoryEvent: events,
    history.HistoryFold: st.builds(
        history.HistoryFold, job_ids, st.lists(events, max_size=2).map(tuple), whole
    ),
    applications.ApplicationRecord: mains,
    objects.BatchManifest: st.builds(
        objects.BatchManifest, job_ids, st.text(), whole, whole, stored_files, stored_files, earlier
    ),
    objects.ClosedInput: st.builds(objects.ClosedInput, job_ids, st.text(), st.text(), stored),
    objects.JobReferences: st.builds(objects.JobReferences, job_ids, whole),
    objects.InputListing: st.builds(
        objects.InputListing, job_ids, st.text(), st.dictionaries(paths, st.text(), max_size=3)
    ),
    objects.MergedBatches: st.builds(
        objects.MergedBatches, job_ids, st.text(),
        st.lists(st.builds(objects.BatchFiles, whole, stored_files), max_size=2).map(tuple),
        earlier,
    ),
    objects.OutputIndex: st.builds(objects.OutputIndex, job_ids, by_name, by_name),
    objects.OutputManifest: st.builds(objects.OutputManifest, job_ids, st.text(), stored_files),
    exports.ExportRecord: st.builds(
        exports.ExportRecord, st.text(), st.dictionaries(st.text(), st.integers()), st.integers()
    ),
    cluster.ClosedRecord: st.builds(
        cluster.ClosedRecord, st.text(), st.text(), st.booleans(), st.text(), seconds, st.text()
    ),
    cluster.MigrationRecord: st.builds(
        cluster.MigrationRecord, st.text(), st.text(), st.text(), seconds, st.text()
    ),
    cluster.PauseRecord: st.builds(cluster.PauseRecord, seconds, st.text(), st.text()),
    cluster.StorageMarker: st.builds(cluster.StorageMarker, st.text(), st.text(), st.text()),
    cluster.StorageRecord: st.builds(
        cluster.StorageRecord, st.text(), st.text(), st.booleans(), whole, seconds, st.text()
    ),
    cluster.SwitchoverRecord: st.builds(
        cluster.SwitchoverRecord, whole, st.text(), seconds, st.text(), st.text()
    ),
    model.AttemptRecord: st.builds(
        model.AttemptRecord, job_ids, whole, whole, st.text(), seconds, whole,
        st.none() | failures, seconds,
        obstacles=st.lists(
            st.builds(obstacles.Obstacle, st.text(), st.text(), st.text(), whole, seconds),
            max_size=3,
        ).map(tuple),
    ),
    model.CancelRequest: st.builds(model.CancelRequest, job_ids, seconds, st.text()),
    model.CleanupJournal: st.builds(
        model.CleanupJournal, job_ids, st.lists(st.text()).map(tuple), whole,
        st.dictionaries(st.text(), st.text()), st.booleans(),
    ),
    model.EpochRecord: st.builds(
        model.EpochRecord, st.integers(0, MAX_EPOCH), st.text(), st.text()
    ),
    model.FormatRecord: st.builds(model.FormatRecord, whole, seconds),
    model.JobResult: st.builds(
        model.JobResult, job_ids, terminal, json_values, st.none() | failures, whole, whole,
        seconds, seconds, st.lists(summaries, max_size=3).map(tuple), main=st.none() | mains,
    ),
    model.JobSpec: st.builds(
        model.JobSpec, job_ids, st.text(), st.dictionaries(st.text(), json_values, max_size=3),
        st.sampled_from(model.RunnerKind),
        st.builds(policies.RestartPolicy, st.integers(1, 100), seconds, seconds, st.booleans()),
        seconds, st.none() | st.integers(1, 1000),
        st.builds(
            policies.SnapshotPolicy, st.none() | seconds, st.none() | st.integers(1, 100),
            st.none() | seconds, keeps, keeps, keeps, formats.filter(lambda one: one.is_restorable),
        ),
        signature=st.text(), lineage=st.none() | st.builds(
            lineage.Lineage, job_ids, st.sampled_from(lineage.LineageKind), whole, st.text()
        ),
    ),
    lineage.Descendant: st.builds(
        lineage.Descendant, job_ids, job_ids, st.sampled_from(lineage.LineageKind), seconds
    ),
    model.MasterInfo: st.builds(
        model.MasterInfo, st.text(), st.text(), whole, seconds, seconds, st.none() | whole
    ),
    model.StageRecord: st.builds(
        model.StageRecord, job_ids, st.text(), json_values, whole, whole, seconds, seconds,
        st.none() | st.text(), st.booleans(), whole, st.lists(st.text(), max_size=3).map(tuple),
    ),
    model.StopRecord: st.builds(
        model.StopRecord, job_ids, st.sampled_from(model.StopMode),
        st.sampled_from(model.StopState), seconds, st.text(), seconds, st.booleans(),
        st.dictionaries(st.text(), st.text(), max_size=3),
        st.none() | st.builds(model.StopRecord, job_ids, st.just(model.StopMode.DRAIN)),
    ),
    heads.StreamHead: st.builds(
        heads.StreamHead, job_ids, st.text(), whole, st.integers(-1, 10**6), st.text(), st.text(),
        report=st.none() | reports,
    ),
    heads.JobGeneration: st.builds(heads.JobGeneration, job_ids, whole),
    heads.StreamPlan: st.builds(
        heads.StreamPlan, job_ids, st.text(), whole, whole, whole, whole,
        st.dictionaries(st.sampled_from(["metadata", "offsets/1", "sources/0/7"]), st.text()),
        report=st.none() | reports,
    ),
    model.StreamRecord: st.builds(
        model.StreamRecord, job_ids, st.text(), st.booleans(), st.text(), st.text(), seconds
    ),
    snapshots.Manifest: st.builds(
        snapshots.Manifest, job_ids, whole, formats, seconds, st.text(), st.none(),
        st.none() | whole, st.booleans(), pinned, st.dictionaries(st.text(), st.text(), max_size=3),
        st.lists(files, max_size=3).map(tuple), st.dictionaries(st.text(), st.text(), max_size=3),
    ),
    snapshots.RestoreRecord: st.builds(
        snapshots.RestoreRecord, job_ids, st.text(), st.text(), seconds, st.booleans(),
        st.booleans(), st.none() | st.text(),
    ),
    snapshots.SnapshotRecord: st.builds(
        snapshots.SnapshotRecord, job_ids, whole, formats, seconds, st.text(), whole, whole, whole,
        st.none() | st.just("named"), st.none() | whole, st.booleans(), pinned,
        st.none() | st.text(), st.none() | st.text(), st.sampled_from(snapshots.TakenBy),
        st.booleans(),
    ),
    model.Tombstone: st.builds(model.Tombstone, job_ids, terminal, seconds, seconds),
}  # fmt: skip

EXAMPLES = [
    model.JobResult(
        "nightly-1",
        model.JobStatus.FAILED,
        {"rows": 10, "where": ["s3://b/é", None, 1.5]},
        model.Failure("exit", "died", "Traceback\n\t…", -9),
        attempt=2,
        epoch=7,
        started_at=1.0,
        finished_at=2.5,
        stages=(model.StageSummary("load", 1, 7, 0.5),),
    ),
    model.JobSpec("j", "pkg.mod:f", {"a": 1, "b": [True, {"c": "\0"}]}),
    applications.ApplicationRecord("a", "pkg.mod:main", {"day": "2026-11-20"}, error="no"),
    model.EpochRecord(3, "host-1", "3-abc.lock"),
    model.Tombstone("j"),
    model.CleanupJournal("j", ("spec", "stages"), 2, {"staging": "/a/b: busy"}),
    model.StageRecord("j", "load", [1], 1, 2, 0.5, 9.0, "load-1"),
    model.StopRecord("j", model.StopMode.DRAIN, stages={"sums": "flushing"}),
    model.StreamRecord("j", "sums", True, "a1", "4.0", 1.0),
    model.StreamRecord("j", "sums", True, "a1", "4.0", sink=model.StreamSink("delta", "/t", True)),
    heads.StreamHead("j", "sums", 1, 7, "a1", "batch=7.c4"),
    heads.StreamHead(
        "j", "sums", 1, 7,
        report=heads.BatchReport(7, 9.5, heads.StreamProgress(6, 8.0, 20, 1.5, 2.5, 0.5, 3.0, 4)),
    ),
    heads.JobGeneration("j", 2),
    heads.StreamPlan("j", "sums", 1, 7, 3, 2, {"offsets/7": "v1"}),
    model.MasterInfo("m", "h", 1, 2.0, 3.0),
]  # fmt: skip
by_type = pytest.mark.parametrize("kind", list(STORED), ids=lambda kind: kind.__name__)
by_example = pytest.mark.parametrize("value", EXAMPLES, ids=lambda value: type(value).__name__)


def sealed(name: str, version: int, body: Any) -> bytes:
    """Return a record with a checksum that fits, whatever the body is."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    crc = b"%08x" % zlib.crc32(data)
    return b'{"jrs":"%s/%d","crc":"%s","body":%s}' % (name.encode(), version, crc, data)


def body_of(value: Any) -> dict[str, Any]:
    body = json.loads(codec.encode(value))["body"]
    assert isinstance(body, dict)
    return body


def decoded_field(value: Any) -> Any:
    """Return the value of its second field, to rewrite it as it is."""
    return getattr(value, attrs.fields(type(value))[1].name)


def name_of(value: Any) -> str:
    return codec._TYPES[type(value)][0]


def refused_or_equal(value: Any, data: bytes) -> bool:
    """Decode `data`; return whether it was refused, and fail unless it was or is `value`."""
    try:
        decoded = codec.decode(type(value), data, "here")
    except CorruptRecord as error:
        where = str(error)
    else:
        assert value == decoded
        return False
    assert where.startswith("here: ")
    return True


def test_every_stored_type_is_tested() -> None:
    """A type that is added to the codec is added here too."""
    assert set(codec._TYPES) == set(STORED)


@by_type
def test_round_trip(kind: type) -> None:
    """Every value of every stored type is decoded equal, from one line of ASCII."""

    @settings(deadline=None)
    @given(STORED[kind])
    def there_and_back(value: Any) -> None:
        data = codec.encode(value)
        assert data.isascii()
        assert b"\n" not in data
        assert value == codec.decode(kind, data, "here")
        assert data == codec.encode(codec.decode(kind, data, "here"))

    there_and_back()


FULL_SPEC = model.JobSpec(
    "report-7",
    "etl.jobs:report",
    tags=("team=sales",),
    on_result=OnResult("/opt/notify --channel data"),
    settings=JobSettings(conf={"spark.sql.shuffle.partitions": "4"}, packages=("a:b:1",)),
)


@pytest.mark.parametrize("value", [*EXAMPLES, FULL_SPEC], ids=lambda value: type(value).__name__)
def test_a_hidden_value_changes_no_stored_text(value: Any) -> None:
    """The secret of one job may occur in the records of another one: they are read as they are."""
    data, places = codec.encode(value), {*_texts(body_of(value))}
    for hidden in {text[at : at + 3] for text in places for at in range(len(text))}:
        reveal = masks.hide([hidden])
        try:
            decoded = codec.decode(type(value), data, "here")
        finally:
            reveal()
        assert decoded == value


def _texts(plain: Any) -> Iterator[str]:
    if isinstance(plain, str):
        yield plain
    for each in [*plain, *plain.values()] if isinstance(plain, dict) else ():
        yield from _texts(each)
    for each in plain if isinstance(plain, list) else ():
        yield from _texts(each)


@by_example
def test_every_flipped_bit(value: Any) -> None:
    """A record with any one bit flipped is a CorruptRecord, or means the same."""
    data = codec.encode(value)
    for at in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            refused_or_equal(value, bytes(broken))


@by_example
def test_every_replaced_byte(value: Any) -> None:
    """A record with any byte replaced by a telling other one is a CorruptRecord, or the same."""
    data = codec.encode(value)
    for at in range(len(data)):
        for byte in b'\0\n "{}[]0-e\\\xff':
            refused_or_equal(value, data[:at] + bytes([byte]) + data[at + 1 :])


@by_example
def test_truncated_at_every_byte(value: Any) -> None:
    """A record cut off anywhere is a CorruptRecord; so is one with something behind it."""
    data = codec.encode(value)
    for at in range(len(data)):
        assert refused_or_equal(value, data[:at])
        assert refused_or_equal(value, data[at + 1 :])
    for more in (b"}", b"\n", b" ", b"\0", data):
        assert refused_or_equal(value, data + more)


@by_example
def test_a_field_of_a_newer_version(value: Any) -> None:
    """S6: a field that this version does not know is ignored, and kept on rewriting."""
    newer = sealed(name_of(value), 1, body_of(value) | {"novel": {"a": [1]}})
    decoded = codec.decode(type(value), newer, "here")
    assert attrs.evolve(decoded, unknown=None) == value
    again = attrs.evolve(decoded, **{attrs.fields(type(value))[1].name: decoded_field(decoded)})
    assert json.loads(codec.encode(again))["body"] == body_of(value) | {"novel": {"a": [1]}}


def test_a_field_of_a_newer_version_inside_a_record() -> None:
    """S6: what a newer version adds to a policy within a spec is ignored and kept, too."""
    spec = model.JobSpec("j", "m:f")
    body = body_of(spec)
    body["restart"]["novel"] = 7
    decoded = codec.decode(model.JobSpec, sealed("spec", 1, body), "here")
    assert decoded.restart.attempts == spec.restart.attempts
    changed = attrs.evolve(decoded, partitions=4)
    assert json.loads(codec.encode(changed))["body"]["restart"]["novel"] == 7


def test_a_value_names_its_least_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """S6: a value that an older version cannot act on is refused by it, by name."""
    monkeypatch.setattr(model.Tombstone, "least_reader", lambda self: 2)
    data = codec.encode(model.Tombstone("j"))
    with pytest.raises(UnsupportedVersion, match=r"tombstone .*version 2.*upgrade"):
        codec.decode(model.Tombstone, data, "here")


WRONG: list[Any] = [
    None, True, 0, -1, 1.5, 10**400, "", "x", "NaN", [], [1], [[]], {}, {"a": 1}
]  # fmt: skip


@by_example
def test_wrong_types(value: Any) -> None:
    """A field of a wrong type, under a checksum that fits, is a CorruptRecord or reads equal."""
    body = body_of(value)
    for field in body:
        for other in WRONG:
            data = sealed(name_of(value), 1, body | {field: other})
            try:
                decoded = codec.decode(type(value), data, "here")
            except CorruptRecord:
                continue
            # Only where the type allows it: then it is what was written, not something near it.
            if field in ("restart", "snapshots", "timeout", "settings") and isinstance(other, dict):
                continue  # All of its fields have defaults; others are of a newer version.
            assert other == json.loads(codec.encode(decoded))["body"][field]


@by_example
def test_a_missing_key(value: Any) -> None:
    """A record that lacks a field is refused, or is read with that field's default."""
    body = body_of(value)
    for field in attrs.fields(type(value)):
        if field.name == "unknown":
            continue
        data = sealed(name_of(value), 1, {k: v for k, v in body.items() if k != field.name})
        if field.default is attrs.NOTHING:
            with pytest.raises(CorruptRecord):
                codec.decode(type(value), data, "here")
        else:
            codec.decode(type(value), data, "here")


@pytest.mark.parametrize(
    "body",
    [b"null", b"[]", b"1", b'""', b"NaN", b"{", b"{}", b"\xff", b"[" * 100_000, b"{}{}",
     b'{"job_id":"a/b"}', b'{"job_id":"\\ud800"}', b'{"job_id":1}', b"9" * 5000],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
@by_type
def test_any_body_under_a_good_checksum(kind: type, body: bytes) -> None:
    """No body whatever brings out another exception than CorruptRecord."""
    name, version = codec._TYPES[kind]
    with pytest.raises(CorruptRecord):
        codec.decode(kind, sealed(name, version, body), "here")


@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    """No bytes whatever bring out another exception than CorruptRecord."""
    with pytest.raises(CorruptRecord):
        codec.decode(model.JobSpec, data, "here")


@by_example
def test_a_future_version_is_refused_by_name(value: Any) -> None:
    """A record of a newer version names its type, both versions and the way out."""
    data = re.sub(rb'/[12]"', b'/4"', codec.encode(value), count=1)
    with pytest.raises(UnsupportedVersion, match=rf"here: {name_of(value)} .*version 4.*upgrade"):
        codec.decode(type(value), data, "here")


def test_a_record_of_another_type() -> None:
    """A record is never read as another type, however alike their fields are."""
    data = codec.encode(model.Tombstone("j"))
    with pytest.raises(CorruptRecord, match="holds a 'tombstone', not a 'cancel'"):
        codec.decode(model.CancelRequest, data, "here")


def test_a_number_json_cannot_hold() -> None:
    """What has no JSON form is refused on write."""
    with pytest.raises(ValueError, match="JSON"):
        codec.encode(model.CancelRequest("j", math.inf))


def test_the_same_bytes_are_decoded_once() -> None:
    """Only the same bytes: a record that was written again is read again, and an unreadable one
    stays unreadable. What is large is not kept in memory."""
    first, second, large = (
        codec.encode(model.JobSpec("j", "a:b", {"x": given})) for given in (1, 2, "x" * (16 << 10))
    )

    def once(data: bytes) -> model.JobSpec:
        return codec.decode_once(model.JobSpec, bytes(bytearray(data)), "here")

    assert once(first) is once(first)
    assert once(second).arguments == {"x": 2}
    assert once(large) == once(large)
    assert once(large) is not once(large)
    for _ in range(2):
        with pytest.raises(CorruptRecord):
            once(first[:-1])
