"""PendingCommit: the future of a commit, which an interrupted caller cannot leave locked.

A signal handler that raises, as Ctrl-C does, may do so behind any call of the main thread. In
`concurrent.futures` that can be just after a future's lock was acquired and before the block that
releases it. The thread that completes commits would then wait for that lock, and with it every
other commit of the handle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError


class _Condition(threading.Condition):
    """A condition whose lock `with` acquires and releases in one step each, in C.

    `threading.Condition` has methods in Python for it, which can be interrupted before they return.
    """

    def __init__(self) -> None:
        self._turn = threading.RLock()
        super().__init__(self._turn)

    @property
    def __enter__(self) -> Callable[[], bool]:
        return self._turn.__enter__

    @property
    def __exit__(self) -> Callable[..., None]:
        return self._turn.__exit__


class PendingCommit(Future[None]):
    """The outcome of a commit that is on its way."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = _Condition()  # A private name; tests/contract/test_pending_commit.py.

    def settle(self, error: BaseException | None) -> None:
        """Complete it. Nothing happens if the caller canceled it: the commit is valid anyway.

        Call it without a lock: it calls the callbacks.
        """
        try:
            if error is None:
                self.set_result(None)
            else:
                self.set_exception(error)
        except InvalidStateError:
            pass
