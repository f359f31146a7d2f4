"""Resource: something a job leaves behind, which its cleanup removes."""

from __future__ import annotations

import abc

from jrs.contract.operations import Fence


class Resource(abc.ABC):
    """Something a job leaves behind. Its `name` is what journals and messages call it."""

    name: str
    prioritised = False
    """Removed before all that is not, and a failure of it stops the pass."""

    @abc.abstractmethod
    def clean(self, job_id: str) -> None:
        """Remove it for good. Idempotent; raises if anything is left, saying what and where."""

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        """Do what `clean` does; what is in the backend itself is removed under the leader's fence.

        Raises:
            Fenced: a newer leader exists.
        """
        self.clean(job_id)

    def release(self, job_id: str) -> None:  # noqa: B027  (most resources hold nothing)
        """Let go of what this master holds of it, when the job goes on elsewhere. Idempotent."""

    def describe(self, job_id: str) -> list[str]:
        """Return what `clean` would remove now, one line each."""
        return []
