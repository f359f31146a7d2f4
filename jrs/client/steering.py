"""Steering a cluster as a whole, from a client: storage, pauses, switchovers; and its history."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.client import waiting
from jrs.client.connection import Connection
from jrs.client.waiting import page_behind
from jrs.contract.backend import Backend
from jrs.records.cluster import PauseRecord, StorageRecord, SwitchoverRecord
from jrs.records.history import HistoryKind
from jrs.records.model import MasterInfo
from jrs.recovery.files.storage_identity import recorded_storage
from jrs.recovery.inspect.history import HistoryEntry, HistoryPage, entry_of
from jrs.store import cluster_history, feed
from jrs.store.historian import submitter
from jrs.store.steering import Steering


class ClusterSteering:
    """The calls of a `Client` that concern the cluster as a whole; its base class."""

    _connection: Connection
    backend: Backend

    def storage(self) -> StorageRecord | None:
        """Return the storage that the cluster has recorded; None if it has recorded none yet.

        Raises:
            CorruptRecord: the record cannot be read.
        """
        return recorded_storage(self.backend)

    def adopt_storage(self) -> StorageRecord:
        """Make the client's storage the cluster's, whatever was recorded; return the new record.

        For storage that was moved without its marker, or for an older copy of which you accept what
        is missing. Durable, idempotent.

        Raises:
            WrongState: a master runs, or the store is older than the storage. Nothing was changed.
            InvalidInput: no storage is known, or the cluster's format is older than 5.
        """
        adopted = self._connection.adopt_storage()
        said = f"the storage was adopted: {adopted.path}"
        cluster_history.record(self.backend, HistoryKind.UPKEEP, said)
        return adopted

    def history(self) -> tuple[HistoryEntry, ...]:
        """Return what happened to the cluster itself, in the order in which it was committed: which
        masters were elected, how each leadership ended, and who paused the cluster or requested a
        switchover. The newest 128 events are kept.

        A master that was killed, or replaced while it hung, records nothing: that it lost its
        leadership is recorded by the next one that is elected.

        Raises:
            CorruptRecord: the record cannot be read.
            Unavailable: the backend did not answer.

        Example::

            for entry in client.history():
                print(time.ctime(entry.at), entry.by, entry.epoch, entry.text)
        """
        return tuple(map(entry_of, cluster_history.read(self.backend)))

    def history_after(self, cursor: str = "", limit: int = 1000) -> HistoryPage:
        """Return what happened to all jobs and to the cluster, in the order of the commits.

        A program that keeps the `cursor` of the last entry, or page, that it has handled gets each
        entry once and in order, over all failovers. The newest 10,000 events are kept for that; an
        event is left out if its job's history is gone by then. Reads no more than what is new.

        Args:
            cursor: only what was committed behind it; empty: all that is kept.
            limit: the most entries of the page, up to 1,000.

        Raises:
            NotFound: what is behind the cursor is not kept any more, or the cursor is of another
                backend, from which the cluster was moved. Begin without one.
            InvalidInput: it is no cursor, or the limit is none.
            Unavailable: the backend did not answer.
        """
        return page_behind(self.backend, cursor, limit)

    def history_cursor(self) -> str:
        """Return the cursor behind all that is committed; empty if nothing is kept.

        Raises:
            Unavailable: the backend did not answer.
        """
        return feed.newest(self.backend)

    def follow_history(
        self, after: str = "", timeout: float | None = None
    ) -> Iterator[HistoryEntry]:
        """Yield what happens to all jobs and to the cluster as it is committed, without end.

        Args:
            after: as in `history_after`: the `cursor` of the last entry that was handled.
            timeout: seconds after which it ends; None: never.

        Raises:
            As `history_after`. What was yielded before counts; resume with its last cursor.

        Example::

            for entry in client.follow_history(client.history_cursor()):
                print(entry.job_id, entry.by, entry.kind, entry.text)
        """
        return waiting.for_all_history(self.backend, after, timeout)

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
            NotFound: no such master is registered.
            WrongState: no master leads, `to` is gone or was not heard since it led, no other one
                runs, or the cluster's format is older than 5. Nothing was changed.
        """
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
