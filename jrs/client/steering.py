"""Steering a cluster as a whole, from a client: pauses and switchovers."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.records.checks import check_master_name
from jrs.records.cluster import PauseRecord, SwitchoverRecord
from jrs.records.model import MasterInfo
from jrs.store.historian import submitter
from jrs.store.steering import Steering


class ClusterSteering:
    """The calls of a `Client` that steer the cluster as a whole; its base class."""

    backend: Backend

    def paused(self) -> PauseRecord | None:
        """Return the pause of the cluster; None if it is not paused.

        Raises:
            CorruptRecord: its record cannot be read. The cluster is paused all the same.
        """
        return Steering(self.backend).paused()

    def pause(self, *, reason: str = "") -> PauseRecord:
        """Pause the cluster: no attempt begins from now on, and what runs continues.

        Cleanup, canceling and suspending work as always. An attempt that dies, or whose leader
        dies, is not started again before `unpause`. Durable, idempotent: of a cluster that is
        paused already, the earlier pause is returned.

        Raises:
            WrongState: the cluster's format is older than 5. Nothing was changed.

        Example::

            client.pause(reason="maintenance of the data lake")
        """
        return Steering(self.backend).pause(submitter(), reason)

    def unpause(self) -> bool:
        """End the pause; return whether the cluster was paused. Durable, idempotent."""
        return Steering(self.backend).unpause(submitter())

    def switchover(self, to: str | None = None, *, reason: str = "") -> SwitchoverRecord | None:
        """Have the leader resign so that another master leads; return the request.

        None if `to` leads already. The running attempts end, as at any failover, and the next
        leader recovers their jobs. The other masters leave the campaign to `to` for 10 seconds;
        afterwards any of them may lead. Durable, idempotent; `wait_for_leader` waits for the end.

        Args:
            to: the name of a master; None: the one that has waited longest.

        Raises:
            InvalidInput: `to` is not the name of a master.
            NotFound: no such master is registered.
            WrongState: no master leads, `to` is gone or was not heard since it led, no other one
                runs, or the cluster's format is older than 5. Nothing was changed.
        """
        if to is not None:
            check_master_name(to)
        return Steering(self.backend).request_switchover(to, submitter(), reason)

    def last_switchover(self) -> SwitchoverRecord | None:
        """Return the newest request for a switchover, carried out or not; None if none was made.

        Raises:
            CorruptRecord: its record cannot be read.
        """
        return Steering(self.backend).switchover()

    def wait_for_leader(self, after: int = 0, timeout: float | None = None) -> MasterInfo:
        """Wait until a master leads in an epoch above `after`; return it.

        Args:
            timeout: seconds; None waits forever.

        Raises:
            TimeoutError: none leads within `timeout`.
        """
        return Steering(self.backend).wait_for_leader(after, timeout)
