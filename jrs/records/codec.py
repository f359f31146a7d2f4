"""The codec: every value is stored as versioned, checksummed JSON.

``{"jrs":"<type>/<version>","crc":"<crc32 of the body>","body":<the value>}``, ASCII, one line.
The checksum covers the stored bytes of the body, so that it does not depend on how this version
would write them.

The version is the oldest one whose readers can act on the record. Within a version, a reader
ignores unknown fields and keeps them when it writes the value again. A field that readers must not
ignore needs a new version. Writing is strict. Reading raises `CorruptRecord` for anything that
does not fit, and `UnsupportedVersion` for a newer version; it never guesses.
"""

from __future__ import annotations

import enum
import functools
import json
import re
import zlib
from typing import Any, TypeVar, get_args

import attrs
import cattrs
from cattrs.errors import BaseValidationError, CattrsError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from jrs.contract.errors import CorruptRecord, JrsError, UnsupportedVersion
from jrs.records import (
    applications,
    cluster,
    exports,
    heads,
    history,
    lineage,
    model,
    objects,
    snapshots,
)
from jrs.records.older_versions import FORMER
from jrs.records.stored import Stored

T = TypeVar("T", bound=Stored)

_TYPES: dict[type[Stored], tuple[str, int]] = {
    applications.ApplicationRecord: ("application", 1),
    lineage.Descendant: ("descendant", 1),
    cluster.ClosedRecord: ("closed", 1),
    exports.ExportRecord: ("export", 1),
    cluster.MigrationRecord: ("migration", 1),
    cluster.PauseRecord: ("pause", 1),
    cluster.StorageMarker: ("marker", 1),
    cluster.StorageRecord: ("storage", 1),
    cluster.SwitchoverRecord: ("switchover", 1),
    heads.StreamHead: ("head", 2),
    heads.JobGeneration: ("generation", 1),
    heads.StreamPlan: ("plan", 2),
    history.ClusterHistory: ("elections", 1),
    history.HistoryEvent: ("event", 1),
    history.HistoryFold: ("events", 1),
    model.AttemptRecord: ("attempt", 1),
    model.CancelRequest: ("cancel", 1),
    model.CleanupJournal: ("cleanup", 1),
    model.EpochRecord: ("epoch", 1),
    model.FormatRecord: ("format", 1),
    model.JobResult: ("result", 1),
    model.JobSpec: ("spec", 2),
    model.MasterInfo: ("master", 1),
    model.StageRecord: ("stage", 3),
    model.StopRecord: ("stop", 2),
    model.StreamRecord: ("stream", 1),
    model.Tombstone: ("tombstone", 1),
    objects.BatchManifest: ("batch", 1),
    objects.ClosedInput: ("input", 1),
    objects.InputListing: ("listing", 1),
    objects.JobReferences: ("references", 1),
    objects.MergedBatches: ("batches", 1),
    objects.OutputIndex: ("outputs", 1),
    objects.OutputManifest: ("output", 1),
    snapshots.Manifest: ("manifest", 1),
    snapshots.RestoreRecord: ("restore", 1),
    snapshots.SnapshotRecord: ("snapshot", 2),
}
"""Every stored type, its name and the newest version that this code can act on."""

_KINDS = {name: kind for kind, (name, _) in _TYPES.items()}

_SMALL = 16 << 10
"""Bytes of the largest value that `decode_once` remembers."""
_MOST_SMALL = 256
"""How many values it remembers: more than jobs are at work in a leader at any moment."""

_ENVELOPE = re.compile(rb'\{"jrs":"([a-z]+)/([0-9]{1,9})","crc":"([0-9a-f]{8})","body":(.+)\}')


def _json_value(value: Any, _: Any) -> Any:
    return value


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=False)
    converter.register_structure_hook_factory(_is_stored, lambda kind: _reader(kind, converter))
    converter.register_unstructure_hook_factory(_is_stored, lambda kind: _writer(kind, converter))
    # `model.Json` is JSON already and needs no conversion.
    converter.register_structure_hook_func(lambda kind: kind is Any, _json_value)
    converter.register_unstructure_hook_func(lambda kind: kind is Any, lambda value: value)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(enum.StrEnum, lambda value, kind: kind(value))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_factory(
        lambda kind: getattr(kind, "__origin__", None) is tuple,
        lambda kind: _tuple(kind, converter),
    )
    return converter


def _is_stored(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Stored)


def _reader(kind: type[Stored], converter: cattrs.Converter) -> Any:
    """Return the function that makes a value of plain JSON and keeps unknown fields."""
    structure = make_dict_structure_fn(
        kind, converter, _cattrs_detailed_validation=False, unknown=override(omit=True)
    )
    known = {field.name for field in attrs.fields(kind)} - {"unknown"}

    def read(plain: Any, _: Any) -> Any:
        if type(plain) is not dict:
            raise TypeError(f"{plain!r} is not an object")
        value = structure(plain, kind)
        if known.issuperset(plain):
            return value
        return attrs.evolve(
            value, unknown={name: plain[name] for name in plain if name not in known}
        )

    return read


def _writer(kind: type[Stored], converter: cattrs.Converter) -> Any:
    """Return the function that makes plain JSON of a value, including unknown fields."""
    unstructure = make_dict_unstructure_fn(kind, converter, unknown=override(omit=True))

    def write(value: Stored) -> dict[str, Any]:
        plain: dict[str, Any] = unstructure(value)
        return {**plain, **value.unknown} if value.unknown else plain

    return write


def _tuple(kind: Any, converter: cattrs.Converter) -> Any:
    item = get_args(kind)[0]
    structure = converter.get_structure_hook(item)

    def hook(value: Any, _: Any) -> Any:
        if type(value) is not list:
            raise TypeError(f"{value!r} is not a list")
        return tuple([structure(each, item) for each in value])

    return hook


def _exactly(kind: type) -> Any:
    """Return a hook that accepts only `kind`: cattrs would coerce a damaged value."""

    def hook(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not a {kind.__name__}")
        return value

    return hook


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


_converter = _make_converter()
_from_json = json.JSONDecoder().decode
_to_json = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode


def encode(value: Stored, version: int | None = None) -> bytes:
    """Return the stored form of a value: ASCII without line breaks.

    Args:
        version: of the type, for a cluster that needs a former one; None: the oldest one whose
            readers can act on the value.
    """
    version = value.least_reader() if version is None else version
    plain = _converter.unstructure(value)
    if (former := FORMER.get((type(value), version))) is not None:
        plain = former.from_present(plain)
    return encode_plain(type(value), plain, version)


def encode_plain(kind: type[Stored], plain: dict[str, Any], version: int = 1) -> bytes:
    """Return the stored form of a value of `kind` whose fields are known to be valid, all of them
    and in their order: what `encode` returns, without making the value."""
    body = _to_json(plain).encode("ascii")
    name, _ = _TYPES[kind]
    return b'{"jrs":"%s/%d","crc":"%08x","body":%s}' % (
        name.encode(),
        version,
        zlib.crc32(body),
        body,
    )


def to_json(value: Stored) -> bytes:
    """Return a stored value as plain JSON in ASCII, for programs that are not jrs."""
    return _to_json(_converter.unstructure(value)).encode("ascii")


def to_plain(value: Any) -> Any:
    """Return a stored value, or a list or dict of stored values, as plain JSON."""
    return _converter.unstructure(value)


def with_job_id(data: bytes, job_id: str, where: str) -> bytes:
    """Return a stored record of any type, rewritten for another job.

    Raises:
        CorruptRecord: `data` is not a record, or not a record of a job.
    """
    kind, fields = _opened(data, where)
    if "job_id" not in fields:
        name = kind.decode().partition("/")[0]
        raise CorruptRecord(f"{where}: holds a {name!r}, which belongs to no job")
    return with_fields(data, where, job_id=job_id)


def fields_of(data: bytes, where: str) -> dict[str, Any]:
    """Return the fields of a stored record of any type, including fields of later versions.

    Raises:
        CorruptRecord: `data` is not a record.
    """
    return _opened(data, where)[1]


def with_fields(data: bytes, where: str, **fields: Any) -> bytes:
    """Return a stored record of any type with new values of some fields.

    Raises:
        CorruptRecord: `data` is not a record.
    """
    kind, before = _opened(data, where)
    body = _to_json({**before, **fields}).encode("ascii")
    return b'{"jrs":"%s","crc":"%08x","body":%s}' % (kind, zlib.crc32(body), body)


def _opened(data: bytes, where: str) -> tuple[bytes, dict[str, Any]]:
    """Return the type and version of a stored record, as ``type/version``, and its fields."""
    match = _ENVELOPE.fullmatch(data)
    if match is None or b"%08x" % zlib.crc32(match[4]) != match[3]:
        raise CorruptRecord(f"{where}: not a record of jrs, or damaged")
    try:
        fields = _from_json(match[4].decode())
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"{where}: not a record of jrs: {error}") from error
    if not isinstance(fields, dict):
        raise CorruptRecord(f"{where}: not a record of jrs, or damaged")
    return match[1] + b"/" + match[2], fields


def decode(kind: type[T], data: bytes, where: str) -> T:
    """Return the value that `data` holds; `where` is its place in error messages.

    Raises:
        UnsupportedVersion: a newer jrs wrote the record.
        CorruptRecord: `data` is not a valid record of `kind` for any other reason.
    """
    version, body = _body_of(kind, data, where)
    former = FORMER.get((kind, version))
    try:
        plain = _from_json(body.decode())
        if former is not None and isinstance(plain, dict):
            plain = former.to_present(plain)
        return _converter.structure(plain, kind)
    except (
        CattrsError,
        BaseValidationError,
        JrsError,
        ValueError,
        TypeError,
        OverflowError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise CorruptRecord(f"{where}: not a valid {_TYPES[kind][0]}: {error}") from error


def decode_any(data: bytes, where: str) -> Stored:
    """Return the value that a record of any type holds. Raises as `decode`: a type that this jrs
    does not know is one of a newer jrs."""
    match = _ENVELOPE.fullmatch(data)
    kind = None if match is None else _KINDS.get(match[1].decode())
    if kind is not None:
        return decode(kind, data, where)
    if match is None or b"%08x" % zlib.crc32(match[4]) != match[3]:
        raise CorruptRecord(f"{where}: not a record of jrs ({len(data)} bytes), or damaged")
    raise UnsupportedVersion(f"{where}: a {match[1].decode()!r} record of a newer jrs: upgrade it")


def decode_once(kind: type[T], data: bytes, where: str) -> T:
    """Return as `decode`; the same value again for the same bytes, if they were asked for lately.

    For a leader, which looks at the records of a job several times from its start to its end. JSON
    within the value must not be changed. Raises as `decode`.
    """
    value: T = (_decoded if len(data) <= _SMALL else decode)(kind, data, where)
    return value


_decoded: Any = functools.lru_cache(_MOST_SMALL)(decode)


def plain_of(kind: type[Stored], data: bytes, where: str) -> dict[str, Any]:
    """Return the fields of a record of `kind` as they are stored. For callers that need few of
    them, and check those: the values of the fields are not checked.

    Raises:
        UnsupportedVersion, CorruptRecord: as `decode`, except for the values of the fields.
    """
    version, body = _body_of(kind, data, where)
    former = FORMER.get((kind, version))
    try:
        plain = _from_json(body.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"{where}: not a valid {_TYPES[kind][0]}: {error}") from error
    if type(plain) is not dict:
        raise CorruptRecord(f"{where}: not a valid {_TYPES[kind][0]}: not an object")
    return plain if former is None else former.to_present(plain)


def _body_of(kind: type[Stored], data: bytes, where: str) -> tuple[int, bytes]:
    """Return the version and the body of a record of `kind`; raises as `decode`."""
    name, newest = _TYPES[kind]
    match = _ENVELOPE.fullmatch(data)
    if match is None:
        raise CorruptRecord(f"{where}: not a record of jrs ({len(data)} bytes)")
    found, version, crc, body = match.groups()
    if found.decode() != name:
        raise CorruptRecord(f"{where}: holds a {found.decode()!r}, not a {name!r}")
    if int(version) > newest:
        raise UnsupportedVersion(
            f"{where}: {name} record of version {int(version)}; this jrs reads up to {newest}: "
            "upgrade it"
        )
    if b"%08x" % zlib.crc32(body) != crc:
        raise CorruptRecord(f"{where}: checksum mismatch, the record is damaged")
    return int(version), body
