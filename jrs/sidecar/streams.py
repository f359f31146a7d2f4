"""Streams: events of a job or of the cluster, and a log that is followed.

A stream is level-triggered: it begins with the present state, and an event says that something is
different now, never what happened meanwhile. All streams share one watch, those of one job share
what is read of it, and those of the history what is new in it. A client that does not read is
dropped after a while, and meanwhile only its own stream waits for it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from jrs.client import plain
from jrs.client.client import Client
from jrs.client.logs import LogPart
from jrs.client.overview import job_line
from jrs.contract.errors import JrsError, NotFound, Unavailable
from jrs.sidecar.changes import Changes, Note, Reader
from jrs.sidecar.places import Places
from jrs.sidecar.problems import problem_of
from jrs.sidecar.route_form import Call, Kind, Param, Route, query_values
from jrs.sidecar.shared_feed import Sent, SentPage, SharedFeed
from jrs.sidecar.shared_reads import SharedReads
from jrs.sidecar.storage_threads import StorageThreads
from jrs.store import history

MOST_STREAMS = 1000
MOST_FOLLOWED = 8
"""Logs that are followed at once: each has a thread."""
_PULSE = 15.0
"""Seconds after which a stream without events says that it lives."""
_PATIENCE = 30.0
"""Seconds for which a client may not read before its stream is dropped."""
_CHECK = 1.0
"""Seconds for which a stream trusts that its caller is still let in."""
_REST = 0.1
"""Seconds between two events of a stream."""
_SHORT_REST = 0.05
"""The same, of a stream of the history, whose events cost little."""
_TOGETHER = 64
"""Old events that are sent together."""
_ALIVE = ":\n\n"
"""A comment, which says that the stream lives."""

ROUTES = (
    Route("GET", "/v1/events", "events", None,
          "Which jobs may have changed, as server-sent events.", "backend.watch",
          produces="text/event-stream"),
    Route("GET", "/v1/jobs/{id}/events", "job_events", None,
          "The state of a job whenever it changes, as server-sent events.",
          "client.job(id).view(), explain(), streams(), history(), descendants()",
          produces="text/event-stream"),
    Route("GET", "/v1/history/events", "history_events", None,
          "What happened to all jobs and to the cluster, as server-sent events.",
          "client.follow_history(after)",
          (Param("after", "a cursor; else that of Last-Event-ID; else all that is kept"),),
          produces="text/event-stream"),
    Route("GET", "/v1/jobs/{id}/log", "log", None,
          "What an attempt has printed.", "client.job(id).logs(…)",
          (Param("attempt", "by its number; else the newest", Kind.WHOLE, least=1),
           Param("stream", "out or err; else both", choices=("out", "err")),
           Param("tail", "begin with that many last lines", Kind.WHOLE),
           Param("follow", "wait for more until the job has ended", Kind.FLAG, default=False)),
          produces="text/plain"),
)  # fmt: skip


class _Unknown(Exception):
    """The caller of a stream is not let in any more."""


class BoundedStream(StreamingResponse):
    """A stream that is dropped when its client does not read for `_PATIENCE` seconds, when its
    caller is not let in any more, or when what it reads is away.

    Args:
        over: called when it has ended, also before its first piece.
    """

    def __init__(
        self,
        pieces: AsyncIterator[str] | AsyncIterator[bytes],
        media_type: str,
        over: Callable[[], None],
    ) -> None:
        super().__init__(pieces, media_type=media_type)
        self._ended = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        checked = time.monotonic()

        async def bounded(message: Any) -> None:
            nonlocal checked
            if time.monotonic() - checked >= _CHECK:
                if not scope["jrs_known"]():
                    raise _Unknown
                checked = time.monotonic()
            async with asyncio.timeout(_PATIENCE):
                await send(message)

        dropped = (TimeoutError, _Unknown, Unavailable)
        try:
            await super().__call__(scope, receive, bounded)
        except (*dropped, ExceptionGroup) as error:
            if isinstance(error, ExceptionGroup) and error.split(dropped)[1] is not None:
                raise
        finally:
            self._ended()


class Streams:
    """Answers the routes of this module."""

    def __init__(self, client: Client, changes: Changes, storage: StorageThreads) -> None:
        self._client = client
        self._changes = changes
        self._storage = storage
        self._states = SharedReads(changes, self._state, MOST_STREAMS)
        self._feed = SharedFeed(changes, self._page)
        self._open = Places("event streams", MOST_STREAMS)
        self._followed = Places("followed logs", MOST_FOLLOWED)

    async def answer(self, route: Route, request: Request) -> Response:
        """Return the stream of a route.

        Raises:
            JrsError: the stream cannot begin.
        """
        values = query_values(request.query_params.multi_items(), route.query)
        call = Call(self._client, "", {**request.path_params, **values})
        if route.name == "log":
            return await self._log(call)
        if route.name == "history_events":
            after = call["after"] or request.headers.get("last-event-id", "")
            # A cursor that is of no use is refused before the stream begins.
            await asyncio.to_thread(self._client.history_after, after, 1)
            return self._stream(self._of_history(after))
        return self._stream(
            self._of_job(call["id"]) if route.name == "job_events" else self._of_cluster()
        )

    def _stream(self, events: AsyncIterator[str] | AsyncIterator[bytes]) -> Response:
        self._open.take()
        return BoundedStream(events, "text/event-stream", self._open.leave)

    # -- events ----------------------------------------------------------------------------

    async def _of_cluster(self) -> AsyncIterator[str]:
        async for _, note in self._notes(None):
            if note is None:
                yield _ALIVE
            else:
                jobs = None if note.jobs is None else sorted(note.jobs)
                yield _event("changed", {"jobs": jobs, "cluster": note.cluster})

    async def _of_job(self, job_id: str) -> AsyncIterator[str]:
        last = ""
        async for reader, note in self._notes(job_id):
            if note is None:
                yield _ALIVE
                continue
            try:
                event = _event("job", await self._states.get(job_id))
            except JrsError as error:
                event = _event("problem", problem_of(error).body())
                if isinstance(error, Unavailable):
                    reader.try_again()
                    if event == last:
                        yield _ALIVE
            if event != last:
                yield event
                last = event

    async def _of_history(self, cursor: str) -> AsyncIterator[bytes]:
        problem = b""
        async for reader, note in self._notes(None, _SHORT_REST):
            if note is None:
                yield _ALIVE.encode()
                continue
            more = True
            while more and not self._changes.over:
                try:
                    if (found := await self._feed.behind(cursor)) is not None:
                        pieces, cursor, more = [found.data], found.cursor, False
                    else:
                        page = await asyncio.to_thread(self._page, cursor)
                        pieces, cursor, more = _pieces(page), page.cursor, page.more
                except JrsError as error:
                    said = _event("problem", problem_of(error).body()).encode()
                    yield _ALIVE.encode() if said == problem else said
                    problem = said
                    if isinstance(error, NotFound):
                        return  # What came next was swept: the client has read too slowly.
                    if isinstance(error, Unavailable):
                        reader.try_again()
                    break
                problem = b""
                for piece in filter(None, pieces):
                    yield piece
                if not more:
                    self._feed.begin(cursor)

    def _page(self, cursor: str) -> SentPage:
        """Return what is behind a cursor, as it is sent."""
        page = self._client.history_after(cursor)
        events = (
            Sent(f"id: {entry['cursor']}\n{_event('history', entry)}".encode(), entry["cursor"])
            for entry in plain.of_fed(page.entries)
        )
        return SentPage(tuple(events), page.cursor, page.more)

    def _state(self, job_id: str) -> dict[str, Any]:
        """Return what is sent of a job: whatever its page shows changes it, but for its log."""
        job = self._client.job(job_id)
        view = job.view()
        explained = None if view.has_ended else job.explain()
        happened = history.read(self._client.backend, job_id)
        cleanup = view.cleanup
        return {
            **job_line(view, explained).plain(),
            "batches": {one.stage: one.batch for one in job.streams()},
            "history": happened[-1].id if happened else None,
            "left": {} if cleanup is None else {**cleanup.given_up, **cleanup.problems},
            "exhausted": cleanup is not None and cleanup.exhausted,
            "descendants": [one.descendant for one in job.descendants()],
        }

    async def _notes(
        self, job_id: str | None, rest: float = _REST
    ) -> AsyncIterator[tuple[Reader, Note | None]]:
        """Yield what may have changed, and None where a while has passed without a change; with the
        reader that has heard of it."""
        with self._changes.reading(job_id) as reader:
            while not self._changes.over:
                note = await reader.wait(_PULSE)
                yield reader, note if note.cluster or note.jobs is None or note.jobs else None
                await asyncio.sleep(rest)

    # -- logs ------------------------------------------------------------------------------

    async def _log(self, call: Call) -> Response:
        job, follow = call.client.job(call["id"]), call["follow"]
        if follow:
            self._followed.take()
        leave = self._followed.leave if follow else lambda: None
        try:
            parts = await self._storage.run(partial(
                job.logs, attempt=call["attempt"], stream=call["stream"], tail=call["tail"],
                follow=follow, heartbeats=follow,
            ))  # fmt: skip
        except BaseException:
            leave()
            raise
        text = self._text(parts, call["stream"] is not None)
        return BoundedStream(text, "text/plain; charset=utf-8", leave)

    async def _text(self, parts: Iterator[LogPart], one: bool) -> AsyncIterator[bytes]:
        shown: tuple[int, str] | None = None
        try:
            read = partial(self._storage.run, lambda: next(parts, None), begun_before=True)
            while (part := await read()) is not None:
                if self._changes.over:
                    return
                if not part.data:
                    yield b""  # So that a follower of a silent log is checked as well.
                    continue
                if not one and (part.attempt, part.stream) != shown:
                    title = f"==> attempt {part.attempt}, std{part.stream} <==\n"
                    yield (title if shown is None else f"\n{title}").encode()
                shown = part.attempt, part.stream
                yield part.data
        except NotFound:
            return  # The log was removed meanwhile.


def _pieces(page: SentPage) -> list[bytes]:
    """Return the events of a page, some of them together: a client has to read each piece in
    time."""
    data = [event.data for event in page.events]
    return [b"".join(data[at : at + _TOGETHER]) for at in range(0, len(data), _TOGETHER)]


def _event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(value)}\n\n"
