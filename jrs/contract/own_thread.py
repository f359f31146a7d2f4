"""Awaiting a call that blocks, in a thread of its own.

The threads of asyncio's pool are few, and asyncio itself needs them, for example to look up names:
a call that may block for hours is not for them.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from jrs.contract.runtime import daemon

T = TypeVar("T")


async def in_own_thread(call: Callable[[threading.Event], T], name: str) -> T:
    """Return what a call returns, or raise what it raises.

    Args:
        call: gets an event that is set once nobody waits for it any more, as when the task is
            canceled; then it has to end soon.
        name: of the thread.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    canceled, context = threading.Event(), contextvars.copy_context()

    def settle(give: Callable[[], None]) -> None:
        if not answer.done():
            give()

    def run() -> None:
        give: Callable[[], None]
        try:
            give = partial(answer.set_result, context.run(call, canceled))
        except BaseException as error:
            give = partial(answer.set_exception, error)
        with suppress(RuntimeError):  # The loop has been closed.
            loop.call_soon_threadsafe(settle, give)

    daemon(run, name).start()
    try:
        return await answer
    finally:
        canceled.set()
