"""Resource: something that a job leaves behind and that its cleanup removes."""

from __future__ import annotations

import abc

from jrs.contract.operations import Fence


class GivenUp(Exception):
    """Raised by `Resource.clean` if no further try can succeed. The cleanup continues without the
    resource and reports the message."""


class Resource(abc.ABC):
    """Something that a job leaves behind. Journals and messages call it by its `name`."""

    name: str
    prioritised = False
    """Removed before all resources that are not prioritised; a failure stops the pass."""
    last = False
    """Removed once all resources that are not `last` are gone."""
    most_tries: int | None = None
    """After so many failed tries the cleanup continues without it, and says so; None: never."""

    @abc.abstractmethod
    def clean(self, job_id: str) -> None:
        """Remove it for good. Idempotent; raises if anything is left, naming what and where."""

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        """Do what `clean` does, and remove what is in the backend under the leader's fence.

        Raises:
            Fenced: a newer leader exists.
        """
        self.clean(job_id)

    def release(self, job_id: str) -> None:  # noqa: B027  (most resources hold nothing)
        """Release what this master holds of it when the job continues elsewhere. Idempotent."""

    def describe(self, job_id: str) -> list[str]:
        """Return what `clean` would remove now, one line each."""
        return []


class FencedResource(Resource):
    """A resource with records in the backend, which are removed under the leader's fence."""

    def clean(self, job_id: str) -> None:
        self.clean_fenced(job_id, None)

    @abc.abstractmethod
    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        """Remove it for good, its records under the fence. Idempotent."""
