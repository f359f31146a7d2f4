"""A snapshot without a stage and all that come after it, so that they run again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from jrs.contract.errors import InvalidInput
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import StageRecord, StreamRecord
from jrs.records.snapshots import Manifest

from .open import OpenSnapshot

_LAST = 1 << 31
"""The position of a stream of which none is recorded: behind all stages."""


def without(found: OpenSnapshot, stage: str) -> OpenSnapshot:
    """Return an opened snapshot as if a stage, and all that come after it, had never been started.

    A stage comes after another one if it was declared so, or if the job reached it later.

    Raises:
        InvalidInput: the job has no such stage; or one of the stages has published at a path of the
            user's own, where something still is.
        CorruptRecord: a record in the snapshot cannot be read.
    """
    return attrs.evolve(found, manifest=without_stage(found.manifest, stage))


def without_stage(
    manifest: Manifest, stage: str, is_there: Callable[[str], bool] = os.path.lexists
) -> Manifest:
    """Return the manifest of a snapshot without a stage and those after it; see `without`.

    Args:
        is_there: returns whether something is at a place where a stage has published.
    """
    stages, streams = dict(_stages(manifest)), dict(_streams(manifest))
    order = {each.name: _LAST for each in manifest.stages}
    order |= {name: record.order or _LAST for name, record in streams.items()}
    order |= {name: record.order for name, record in stages.items()}
    if stage not in order:
        known = ", ".join(sorted(order, key=lambda name: order[name])) or "none"
        raise InvalidInput(
            f"job {manifest.job_id!r} has neither finished a stage {stage!r} nor started such a "
            f"stream (what has: {known}); a stage that has not finished runs again anyway"
        )
    after = {name: record.after for name, record in streams.items()}
    after |= {name: record.after for name, record in stages.items()}
    gone = _gone(stage, order, after)
    for name in gone & stages.keys():
        target = stages[name].target
        if target is not None and is_there(target):
            raise InvalidInput(
                f"stage {name!r} of job {manifest.job_id!r} would publish at {target} again, which "
                "exists: move it away first"
            )
    return attrs.evolve(
        manifest,
        stages=tuple(each for each in manifest.stages if each.name not in gone),
        records={
            key: text for key, text in manifest.records.items() if key.partition("/")[2] not in gone
        },
        files=tuple(file for file in manifest.files if Path(file.path).parts[1] not in gone),
        links={
            path: target
            for path, target in manifest.links.items()
            if Path(path).parts[1] not in gone
        },
        heads={name: named for name, named in manifest.heads.items() if name not in gone},
        plans={name: named for name, named in manifest.plans.items() if name not in gone},
        inputs={
            key: text for key, text in manifest.inputs.items() if key.partition("/")[0] not in gone
        },
    )


# -- inside --------------------------------------------------------------------------------


def _gone(stage: str, order: dict[str, int], after: dict[str, tuple[str, ...]]) -> set[str]:
    gone = {stage} | {name for name in order if order[name] > order[stage]}
    while more := {name for name in after.keys() - gone if gone.intersection(after[name])}:
        gone |= more
    return gone


def _stages(manifest: Manifest) -> Iterator[tuple[str, StageRecord]]:
    for key, stored in manifest.stored(keys.STAGES):
        record = decode(StageRecord, stored, key)
        yield record.name, record


def _streams(manifest: Manifest) -> Iterator[tuple[str, StreamRecord]]:
    for key, stored in manifest.stored(keys.STREAMS):
        record = decode(StreamRecord, stored, key)
        yield record.name, record
