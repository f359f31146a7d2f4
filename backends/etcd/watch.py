"""Watch: a stream of hints that is reopened whenever it breaks, and backed up by the clock.

A stream can be dead without a sign: a stream that was opened with an expired token never delivers
anything. So the watch also fires now and then without a hint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError
from jrs.contract.runtime import JrsThread, start_thread
from jrs.contract.watch import Watch

from ..shared.changes import Changes
from ._etcd3 import grpc, rpc
from .connection import ATTEMPT, Connection, behind

_POLL = 5.0
"""Seconds after which a watch fires without a hint."""

_SILENCE = 15.0
"""Seconds of silence after which a watch reports that any key may have changed, because its stream
may be dead. Masters write heartbeats more often, so a stream that sees them is never silent."""

_PAUSES = (0.1, 2.0)
"""Seconds before a broken stream is reopened: at first, and at most."""


class EtcdWatch(Watch):
    """A watch that a stream of etcd's wakes, in a thread of its own.

    Args:
        prefix: the prefix of etcd's keys.
        above: bytes of an etcd key before the map's key.

    Raises:
        Unavailable: this host has no thread left for it.
    """

    def __init__(self, connection: Connection, prefix: bytes, above: int = 0) -> None:
        self._connection = connection
        self._prefix = prefix
        self._above = above
        self._changes = Changes()
        self._heard_at = time.monotonic()
        self._hint = threading.Event()
        self._hint.set()
        self._fired = time.monotonic()
        self._over = threading.Event()
        self._stream: Any = None
        self._turn = threading.Lock()
        self._thread = JrsThread(target=self._listen, name="jrs-etcd-watch", daemon=True)
        start_thread(self._thread)

    def wait(self, timeout: float) -> bool:
        now = time.monotonic()
        due = self._fired + _POLL
        heard = self._hint.wait(max(0.0, min(timeout, due - now)))
        now = time.monotonic()
        if not heard and now < due:
            return False
        self._hint.clear()
        self._fired = now
        return True

    def changes(self, timeout: float) -> frozenset[str] | None:
        silent_at = self._heard_at + _SILENCE
        if self._hint.wait(max(0.0, min(timeout, silent_at - time.monotonic()))):
            self._hint.clear()
            return self._changes.take()
        now = time.monotonic()
        if now < silent_at:
            return frozenset()
        self._heard_at = now
        return None

    def close(self) -> None:
        self._over.set()
        with self._turn:
            if self._stream is not None:
                self._stream.cancel()
        if self._thread is not threading.current_thread():
            self._thread.join(10.0)

    def _listen(self) -> None:
        pause, most = _PAUSES
        # A closed handle receives nothing any more.
        while not (self._over.is_set() or self._connection.closed):
            try:
                heard = self._follow()
            except (grpc.RpcError, JrsError, ValueError, RuntimeError):
                heard = False  # RuntimeError: no thread can be started for the stream.
                self._connection.next_member()
            # Changes may have been missed while no stream was open.
            self._hear(None)
            pause = _PAUSES[0] if heard else min(2 * pause, most)
            self._over.wait(pause)

    def _follow(self) -> bool:
        """Listen until the stream ends or breaks; return whether it delivered anything."""
        # A stream does not notice an expired token; this read does, and renews the token.
        self._connection.read(
            lambda stubs: stubs.kv.Range,
            rpc.RangeRequest(key=self._prefix, keys_only=True, limit=1),
            Deadline.after(ATTEMPT),  # Not longer, because `close` waits for it.
        )
        create = rpc.WatchCreateRequest(key=self._prefix, range_end=behind(self._prefix))
        ended = threading.Event()
        with self._turn:
            if self._over.is_set():
                return True
            self._stream = self._connection.stream(
                lambda stubs: stubs.watch.Watch, _requests(create, ended)
            )
        heard = False
        try:
            for answer in self._stream:
                self._connection.check_etcd(answer, "a member")
                heard = True
                for event in answer.events:
                    self._hear(event.kv.key[self._above :].decode())
                if not answer.events:  # The stream begins, or ends.
                    self._hear(None)
                if answer.canceled:
                    break
        except grpc.RpcError:
            if not heard:
                raise
        finally:
            ended.set()
        return heard

    def _hear(self, key: str | None) -> None:
        self._changes.add(key)
        self._heard_at = time.monotonic()
        self._hint.set()


def _requests(create: Any, ended: threading.Event) -> Iterator[Any]:
    yield rpc.WatchRequest(create_request=create)
    ended.wait()  # The stream lives as long as its requests do.
