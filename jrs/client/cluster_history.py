"""The history of a cluster and of all its jobs, from a client."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput, Unavailable
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.recovery.inspect.history import HistoryEntry, HistoryPage, entry_of, page
from jrs.store import cluster_history, feed


class ClusterHistory:
    """The calls of a `Client` that read what has happened; its base class."""

    backend: Backend

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
            NotFound: entries after the cursor are no longer kept, or the cluster was moved here
                from the backend that gave the cursor. Begin without a cursor.
            InvalidInput: `cursor` is not a cursor, or `limit` is not a number from 1 to 1,000.
            Unavailable: the backend did not answer.
        """
        return _page_behind(self.backend, cursor, limit)

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
        return _following(self.backend, after, timeout)


def _page_behind(backend: Backend, cursor: str, limit: int) -> HistoryPage:
    """Return a page of what happened; see `Client.history_after`."""
    if type(limit) is not int or not 1 <= limit <= feed.MOST:
        raise InvalidInput(f"limit must be from 1 to {feed.MOST}, not {shown(limit)}")
    if not isinstance(cursor, str):
        raise InvalidInput(f"not a cursor: {shown(cursor)}")
    return page(backend, cursor, limit)


def _following(backend: Backend, after: str, timeout: float | None) -> Iterator[HistoryEntry]:
    """Yield what happens to all jobs and to the cluster; see `Client.follow_history`."""
    deadline = Deadline.of_wait(timeout)
    heard = True
    with backend.watch(keys.FEED) as watch:
        while True:
            try:
                found = _page_behind(backend, after, feed.MOST)
            except Unavailable:
                if heard:
                    raise
            else:
                yield from found.entries
                after = found.cursor
                if found.more:
                    continue
            # Looked at again in any case: not every watch is told that the cluster was moved.
            heard = watch.wait(min(feed.LOOK, deadline.bounded()))
            if deadline.expired:
                return
