"""Closing the input of a streaming stage: each attempt reads what the first one found."""

from __future__ import annotations

from pathlib import Path

from jrs.contract.operations import create_or_update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.objects import ClosedInput, InputListing
from jrs.store.cluster_format import is_at_least

from ..files import closed_inputs
from ..files.safe_listing import is_folder
from ..storage.packed_copies import read_record
from .context import AttemptContext
from .held import held_if_unreadable


def close(context: AttemptContext, stage: str, source: Path) -> Path:
    """Return a folder of links to the files in `source` at the first call. Durable.

    Raises:
        InvalidInput: `source` is not a folder.
        JobHeld: the record of an input that was closed cannot be read.
        Fenced: this attempt was shut out.
        Unavailable: not all files can be listed now, or the disk of the storage is full, or fails;
            the call may be repeated.
    """
    storage, job_id = context.storage, context.job_id
    path = _place(context, stage, source)
    if storage.objects is None:
        return closed_inputs.close(storage, job_id, stage, source, path)
    links = _recorded(context, stage, source, path.name)
    if is_folder(path) and closed_inputs.links_in(path) != links:
        storage.discard(job_id, path)  # Of an earlier life of the job, which this host has seen.
    if not is_folder(path):
        closed_inputs.make(storage, job_id, path, links)
    return path


# -- inside --------------------------------------------------------------------------------


def _place(context: AttemptContext, stage: str, source: Path) -> Path:
    """Return the folder of an input: that which an earlier attempt has closed, by either name."""
    storage, job_id, backend = context.storage, context.job_id, context.backend
    path = closed_inputs.place_of(storage, job_id, stage, source)
    older = closed_inputs.place_of(storage, job_id, stage, source, portable=False)
    if path == older:
        return path
    with held_if_unreadable():
        if not is_at_least(backend, closed_inputs.PORTABLE_SINCE):
            return older
    if storage.objects is None:
        return older if is_folder(older) else path
    recorded = backend.get(keys.closed_input(job_id, stage, older.name))
    return path if recorded is None else older


def _recorded(context: AttemptContext, stage: str, source: Path, name: str) -> dict[str, str]:
    """Return the links that are recorded for an input; record them first if none are, or those to
    another output of the stage: of the job that this one was made from, or before a restore."""
    key, uploads = keys.closed_input(context.job_id, stage, name), context.uploads
    with held_if_unreadable():
        stored = context.backend.get(key)
        known = None if stored is None else decode(ClosedInput, stored.value, key)
        if known is not None and known.source == str(source):
            return context.until_stored(
                lambda: read_record(uploads.objects, InputListing, known.listing).links
            )
    links = closed_inputs.links_to(stage, source)
    listing = InputListing(context.job_id, stage, links)
    named = context.until_stored(lambda: uploads.writer.put_record(f"{stage}/in", listing))
    closed = encode(ClosedInput(context.job_id, stage, str(source), named))
    context.commit(create_or_update(key, closed, stored and stored.version))
    return links
