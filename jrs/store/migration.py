"""Migration: moves a paused cluster to another backend, record by record, and closes the old one.

Every key is copied by scan, whatever it holds, in steps that can each be interrupted:

1. ``cluster/migration`` of the source gets the id of the migration. From here on this process leads
   the source, so that no leader and no attempt writes there.
2. ``cluster/closed`` of the target names the source: nobody can use the copy yet.
3. The records are copied while clients still write to the source.
4. ``cluster/closed`` of the source names the target, in a commit that checks the fence and the
   pause. Whatever was acknowledged before it is seen by a scan after it; nothing is acknowledged
   behind it, because every commit without a fence checks that the record is absent.
5. What differs is copied again, until a comparison of all records finds no difference.
6. One commit opens the target: it deletes ``cluster/closed`` and writes ``cluster/migration``.

A run that was interrupted is repeated: the ids tell which copy is whose. Each commit to the copy
checks the record that closes it, which each run writes with a name of its own: a run that was
stopped and wakes up changes nothing any more.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    Fenced,
    InvalidInput,
    TooLarge,
    WrongState,
)
from jrs.contract.formats import NEWEST_FORMAT
from jrs.contract.leadership import Leadership
from jrs.contract.operations import (
    Absent,
    Check,
    Create,
    Delete,
    Fence,
    Record,
    create_or_update,
)
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.cluster import ClosedRecord, MigrationRecord
from jrs.records.codec import decode, encode
from jrs.store import history, result_index
from jrs.store.before_migration import named, obstacles, refuse, refuse_to_lose
from jrs.store.cluster_format import arrival_ops, ensure_supported, format_of
from jrs.store.copying import Contents, survey, sync
from jrs.store.opening import closing_of

_TTL = 15.0
_PATIENCE = 30.0
"""Seconds for which it waits until nobody else leads the source."""
_OF_EMPTY = (keys.CLOSED, keys.FORMAT, keys.CLUSTER_HISTORY)
"""What a cluster may hold that nobody has used."""
_ABANDONED = "abandoned-"
"""Begins the id of a copy that no run completes, unless the same migration begins again."""
_PASSES = 5
"""Comparisons after the source was closed; the second one already finds nothing to copy."""


@attrs.frozen
class _State:
    """How far a migration has come."""

    id: str
    """Its id; empty if it has not begun."""
    closed: bool = False
    """Whether the source is closed."""
    complete: bool = False
    copy: Record | None = None
    """The record that closes the target."""


class Migration:
    """The migration of one cluster.

    Args:
        source, target: open whether they are closed or not; see `open_closed`.
        by: who moves the cluster: ``user@host``.
        progress: called with the number of records that were compared, and that of all; each
            comparison counts from 0.
    """

    def __init__(
        self, source: Backend, target: Backend, *, by: str, now: Clock = time.time,
        progress: Callable[[int, int], None] = lambda compared, total: None,
    ) -> None:  # fmt: skip
        self._source = source
        self._target = target
        self._by = by
        self._now = now
        self._progress, self._total = progress, 0

    # -- before anything is written --------------------------------------------------------

    def check(self) -> bool:
        """Check that the cluster can be moved to the target; return whether it was, completely.

        Raises:
            InvalidInput: both are the same.
            ClusterMoved: the cluster was moved elsewhere before.
            WrongState: the target is not empty, or is another migration's copy.
            UnsupportedVersion: the target has a newer format than this jrs knows.
            CorruptRecord: a record of a migration cannot be read.
        """
        if self._source.url == self._target.url:
            raise InvalidInput(f"--from and --to are the same backend, {self._source.url}")
        ensure_supported(self._target, convert=False)
        format_of(self._target)  # The last commit needs it: it must be readable.
        return self._state().complete

    def survey(self) -> Contents:
        """Return what would be copied. Reads everything and changes nothing.

        Raises:
            TooLarge: the target takes no value, or no key, of that size; the message names it.
            CorruptRecord: the backend cannot read a record.
        """
        return survey(self._source, self._target)

    # -- the move --------------------------------------------------------------------------

    def carry_out(self) -> Contents:
        """Move the cluster; return what was copied. Repeat it if it was interrupted.

        Raises:
            WrongState: the cluster is not paused, a master leads, or another process does the same.
            TooLarge: as `survey`. The source is open.
            Unavailable, OutcomeUnknown: of either backend; repeat the call.
            And as `check`.
        """
        if self.check():
            return self.survey()
        if not self._state().closed:
            refuse(obstacles(self._source, self._now))
        self._total = self._survey_or_reopen(None).records
        with self._lead() as leadership:
            state = self._state()
            if state.complete:
                return self.survey()  # Another run was faster.
            try:
                return self._move(state, leadership.fence)
            except Fenced:
                raise WrongState(
                    f"another process leads {named(self._source)} now: stop it, and repeat"
                ) from None

    def abandon(self, *, copy_lost: bool = False) -> bool:
        """Open the source again, and leave its copy closed; return whether it was closed.

        Durable, idempotent.

        Args:
            copy_lost: the target has lost all that it held. The source does not record whether the
                move was completed, so a person has to say it.

        Raises:
            WrongState: the cluster is at the target, or was moved elsewhere; the target holds
                nothing, without `copy_lost`; or a master leads.
            Unavailable, OutcomeUnknown: of either backend; repeat the call.
        """
        if self._source.get(keys.CLOSED) is None:
            return False
        with self._lead() as leadership:
            stored = self._source.get(keys.CLOSED)
            if stored is None:
                return False
            left = decode(ClosedRecord, stored.value, stored.key)
            copy = self._target.get(keys.CLOSED)
            there = None if copy is None else decode(ClosedRecord, copy.value, copy.key)
            abandoned = _ABANDONED + left.migration
            if there is None:
                ours = _first(self._target) is None
                if ours:
                    refuse_to_lose(self._source, stored, self._target.url, copy_lost=copy_lost)
            else:
                ours = there.arriving and there.migration in (left.migration, abandoned)
            if left.arriving or not ours:
                raise WrongState(
                    f"{named(self._target)} is no copy that is not complete: to return from "
                    "there, exchange --from and --to"
                )
            if copy is not None:
                # The copy first: no run that sleeps may open it once the source is open.
                self._hold_copy(_State(abandoned, copy=copy))
            self._source.commit(Delete(stored.key, stored.version), fence=leadership.fence)
        return True

    def _move(self, state: _State, fence: Fence) -> Contents:
        if not state.closed:
            if not result_index.is_complete(self._source):
                result_index.build(self._source)
            state = self._begin(state, fence)
        copy = self._hold_copy(state)
        if not state.closed:
            history.fold_all(self._source, fence)  # So that little is left to fold below.
            self._copy(copy)
            self._close(state, fence)
        # Its order is that of the records' versions, which are the target's own there.
        history.fold_all(self._source, fence)
        contents = self._survey_or_reopen(fence)
        for _ in range(_PASSES):
            if not self._copy(copy):
                break
        else:
            raise WrongState(
                f"{named(self._source)} still changes although it is closed: stop all processes "
                "of older versions of jrs, and repeat"
            )
        self._open_target(state, copy)
        return contents

    def _begin(self, state: _State, fence: Fence) -> _State:
        """Write the id of the migration to the source."""
        stored = self._source.get(keys.MIGRATION)
        before = _migration(stored)
        id = state.id or uuid.uuid4().hex
        if before.leaves_by != id:
            record = attrs.evolve(before, leaves_by=id, leaves_to=self._target.url)
            op = create_or_update(keys.MIGRATION, encode(record), stored and stored.version)
            commit_and_read_back(self._source, op, fence=fence)
        return attrs.evolve(state, id=id)

    def _hold_copy(self, state: _State) -> Check:
        """Close the target to all but this run; return the condition that this run writes under."""
        record = ClosedRecord(
            state.id, self._source.url, arriving=True, run=uuid.uuid4().hex, at=self._now(),
            by=self._by,
        )  # fmt: skip
        found = state.copy
        value = encode(record)
        op = create_or_update(keys.CLOSED, value, found and found.version)
        try:
            commit_and_read_back(self._target, op, *([] if found else [Absent(keys.EPOCH)]))
        except Conflict:
            raise self._overtaken() from None
        held = self._target.get(keys.CLOSED)
        if held is None or held.value != value:
            raise self._overtaken()
        check = Check(keys.CLOSED, held.version)
        if found is None and (other := _first(self._target)) is not None:
            self._target.commit(Delete(keys.CLOSED, held.version))
            raise _not_empty(self._target, other)
        return check

    def _close(self, state: _State, fence: Fence) -> None:
        pause = self._source.get(keys.PAUSE)
        if pause is None:
            raise WrongState(f"{named(self._source)} is not paused any more: jrs pause, repeat")
        record = ClosedRecord(state.id, self._target.url, at=self._now(), by=self._by)
        try:
            commit_and_read_back(
                self._source,
                Create(keys.CLOSED, encode(record)),
                Check(keys.PAUSE, pause.version),
                fence=fence,
            )
        except Conflict:
            raise WrongState(f"{named(self._source)} was changed meanwhile: repeat it") from None

    def _survey_or_reopen(self, fence: Fence | None) -> Contents:
        """Return the survey. If the target cannot take all records, open the source again."""
        try:
            return self.survey()
        except (TooLarge, CorruptRecord):
            closed = self._source.get(keys.CLOSED)
            if closed is not None:
                self._reopen(closed, fence)
            raise

    def _reopen(self, closed: Record, fence: Fence | None) -> None:
        if fence is not None:
            self._source.commit(Delete(closed.key, closed.version), fence=fence)
            return
        with self._lead() as leadership:
            state = self._state()
            if state.closed and not state.complete:
                self._hold_copy(state)  # No run that sleeps may open it once the source is open.
                self._source.commit(Delete(closed.key, closed.version), fence=leadership.fence)

    def _open_target(self, state: _State, copy: Check) -> None:
        stored = self._target.get(keys.MIGRATION)
        record = MigrationRecord(state.id, "", self._source.url, self._now())
        op = create_or_update(keys.MIGRATION, encode(record), stored and stored.version)
        self._target.mark_format(NEWEST_FORMAT)
        own = arrival_ops(self._target, self._now())
        try:
            commit_and_read_back(self._target, op, *own, Delete(keys.CLOSED, copy.version))
        except Conflict:
            raise self._overtaken() from None

    def _copy(self, copy: Check) -> int:
        try:
            return sync(
                self._source, self._target, copy, lambda done: self._progress(done, self._total)
            )
        except Conflict:
            raise self._overtaken() from None

    def _overtaken(self) -> WrongState:
        return WrongState(
            f"another process writes to {named(self._target)}: jrs migrate may run twice; repeat "
            "it once the other one has ended"
        )

    # -- what is known ---------------------------------------------------------------------

    def _state(self) -> _State:
        """Return how far the migration has come, or raise if source and target are no pair."""
        stored = self._source.get(keys.CLOSED)
        left = None if stored is None else decode(ClosedRecord, stored.value, stored.key)
        own = _migration(self._source.get(keys.MIGRATION))
        copy = self._target.get(keys.CLOSED)
        there = None if copy is None else decode(ClosedRecord, copy.value, copy.key)
        if stored is not None and left is not None:
            if not left.arriving and there is not None and there.migration == left.migration:
                return _State(left.migration, closed=True, copy=copy)
            arrived = _migration(self._target.get(keys.MIGRATION))
            if not left.arriving and there is None and arrived.came_by == left.migration:
                return _State(left.migration, closed=True, complete=True)
            if there is not None and there.migration == _ABANDONED + left.migration:
                raise WrongState(
                    f"the migration of {named(self._source)} was being abandoned: repeat that, "
                    "with --abandon"
                )
            raise closing_of(self._source).error(stored.value)
        if there is None:
            other = _first(self._target)
            if other is not None:
                raise _not_empty(self._target, other)
            return _State("")
        if there.arriving and there.migration in (own.leaves_by, _ABANDONED + own.leaves_by):
            return _State(own.leaves_by, copy=copy)
        if not there.arriving and there.migration == own.came_by:
            return _State("", copy=copy)  # It returns to where it came from.
        if there.arriving and there.migration.startswith(_ABANDONED):
            raise WrongState(
                f"{named(self._target)} is a copy of {there.url} that was abandoned: remove it, or "
                "name an empty target, such as a new folder or another prefix"
            )
        if there.arriving:
            raise WrongState(
                f"{named(self._target)} is the copy of {there.url} that another migration has "
                "begun: complete that one, or name an empty target"
            )
        raise WrongState(
            f"{named(self._target)} holds a cluster that was moved to {there.url}, and did not "
            "become this one: name an empty target"
        )

    def _lead(self) -> Leadership:
        """Return the leadership of the source: while it lasts, no master leads there."""
        limits = self._source.capabilities
        stop = threading.Event()
        timer = threading.Timer(_PATIENCE, stop.set)
        timer.daemon = True
        timer.start()
        try:
            leadership = self._source.campaign(
                f"migrate-{uuid.uuid4().hex[:8]}",
                ttl=min(max(_TTL, limits.min_ttl), limits.max_ttl),
                stop=stop,
            )
        finally:
            timer.cancel()
        if leadership is None:
            raise WrongState(
                f"a master leads {named(self._source)}: stop all masters and applications first"
            )
        return leadership


def _first(backend: Backend) -> str | None:
    """Return the first key of a cluster; None if it holds nothing but its closing record, or the
    records of a raise of its format."""
    others = (record.key for record in backend.scan("") if record.key not in _OF_EMPTY)
    return next((key for key in others if not key.startswith(keys.FEED)), None)


def _not_empty(target: Backend, key: str) -> WrongState:
    return WrongState(
        f"{named(target)} is not empty: it holds {key!r}; name an empty target, such as a new "
        "folder or another prefix"
    )


def _migration(stored: Record | None) -> MigrationRecord:
    if stored is None:
        return MigrationRecord("", "")
    return decode(MigrationRecord, stored.value, stored.key)
