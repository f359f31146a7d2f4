"""What an earlier life of a job has left: files that no record of the cluster explains.

The backend was lost, or restored from a backup, and the storage was not. Such files may be all that
is left of what they hold, so nothing is put in their place.
"""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.records import keys

from ..files import epoch_folders
from ..files.job_folders import JobStorage
from ..files.safe_listing import names_in
from ..storage.packed_copies import needs_no_attempt
from . import folders


def found(backend: Backend, storage: JobStorage, job_id: str) -> str:
    """Return, for people, what is found at the place of a job of which nothing ran; empty if there
    is nothing.

    Raises:
        Unavailable: from the backend or the store of objects; a folder cannot be listed now.
    """
    if storage.objects is not None:
        # Copies and snapshots harm no attempt, even if a crash or a deletion has left them unnamed.
        listed = storage.objects.under(job_id)
        first = next((one for one in listed if not needs_no_attempt(one.name)), None)
        if first is None:
            return ""
        return (
            f"{storage.objects.url}/{job_id}/ has objects of an earlier life, or of another owner, "
            f"such as {first.name}"
        )
    folder = storage.folder(job_id)
    # Not `in`: that has only links, and those of a restored job may have no record yet.
    places = [folder / "out", folder / "tmp", *epoch_folders.of_job(folder).values()]
    names = [place.name for place in places if names_in(place)]
    names += [
        f"snapshots/{number}"
        for number in sorted(folders.whole(storage, job_id))
        if backend.get(keys.snapshot(job_id, number)) is None
    ]
    return f"{folder} has files of an earlier life: {', '.join(names)}" if names else ""
