"""The application: the table of routes, the streams, the pages, and what guards them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.routing import Route as Path
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from jrs.client.client import Client
from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError, TooLarge
from jrs.contract.pool import ThreadPool
from jrs.contract.texts import printable
from jrs.sidecar import login, metrics, openapi, probes, reads, snapshots, streams, verbs
from jrs.sidecar.access import Access
from jrs.sidecar.answers import is_for_people, json_answer, plain_page, problem_answer
from jrs.sidecar.changes import NOTHING, Changes
from jrs.sidecar.pages import STATIC, Pages
from jrs.sidecar.places import Places
from jrs.sidecar.problems import Problem, problem_of
from jrs.sidecar.route_form import Call, Reply, Role, Route, body_values, query_values
from jrs.sidecar.storage_threads import StorageThreads
from jrs.sidecar.streams import Streams
from jrs.sidecar.tokens import Caller, Sessions, TokenFile
from jrs.store.historian import acting_for, because

ROUTES: tuple[Route, ...] = (
    *reads.ROUTES,
    *snapshots.READS,
    *streams.ROUTES,
    *verbs.ROUTES,
    *snapshots.VERBS,
)
"""The table of routes: the API is this, its description and nothing else."""

MOST_BODY = 1 << 20
"""Bytes of a body."""
_THREADS = 16
"""Calls of the client at once, besides those that touch the storage."""
MOST_POLLS = 1000
"""Long polls at once."""

_log = logging.getLogger("jrs.sidecar")
_Handler = Callable[[Request], Awaitable[Response]]


def application(
    client: Client,
    changes: Changes,
    *,
    hosts: Iterable[str],
    tokens: TokenFile | None,
    secure: bool = False,
) -> ASGIApp:
    """Return the application over a client.

    Args:
        client: not closed with it.
        changes: of the client's backend; started and stopped with the application.
        hosts: the names under which browsers may ask for it.
        tokens: who may do what; None: everybody who can connect may do everything.
        secure: whether it is served over TLS.
    """
    sessions = Sessions()
    storage = StorageThreads()
    api = _Api(client, changes, storage)
    pages = Pages(client, changes, storage)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        with ThreadPool(_THREADS, "jrs-api") as pool:
            loop.set_default_executor(pool)
            changes.start()
            try:
                yield
            finally:
                await changes.stop()

    paths = [
        *(Path(route.path, api.handler(route), methods=[route.method]) for route in ROUTES),
        Path("/v1/openapi.json", _described),
        Path("/metrics", metrics.handler(client, changes)),
        *probes.paths(client),
        *login.paths(sessions, secure=secure),
        *(Path(path, answering(page)) for path, page in pages.paths()),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    handlers: dict[Any, Any] = {HTTPException: _http_problem, Exception: _failure}
    app = Starlette(routes=paths, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Access(app, hosts=hosts, tokens=tokens, sessions=sessions)


class _Api:
    """Answers the routes of the table."""

    def __init__(self, client: Client, changes: Changes, storage: StorageThreads) -> None:
        self._client = client
        self._changes = changes
        self._storage = storage
        self._streams = Streams(client, changes, storage)
        self._polls = Places("long polls", MOST_POLLS)

    def handler(self, route: Route) -> _Handler:
        """Return what answers a route."""

        async def handle(request: Request) -> Response:
            caller: Caller = request.scope["jrs_caller"]
            id: str = request.scope["jrs_request"]
            try:
                answer = await self._answer(route, request, caller, id)
            except JrsError as error:
                answer = problem_answer(problem_of(error))
            except HTTPException:
                raise
            except Exception as error:
                answer = await _failure(request, error)
            # A refusal is told as well, and an unknown outcome above all.
            if route.role is Role.OPERATE:
                _log_verb(request, caller, answer.status_code, id)
            return answer

        return handle

    async def _answer(self, route: Route, request: Request, caller: Caller, id: str) -> Response:
        if not caller.may(route.role):
            said = f"{route.path} needs the role {route.role.value}"
            return problem_answer(Problem(403, "The role is too small", said))
        if route.call is None:
            if request.method == "HEAD":
                raise HTTPException(405, headers={"Allow": "GET"})  # It would never end.
            return await self._streams.answer(route, request)
        values = query_values(request.query_params.multi_items(), route.query)
        if route.method == "POST":
            values |= body_values(await _body(request), route.body)
        trace = request.headers.get("traceparent", "")
        call = Call(self._client, caller.name, {**values, **request.path_params}, trace)
        with acting_for(caller.name), because(values.get("because", ""), f"request {id}"):
            reply = await self._reply(route, call, request)
        return json_answer(reply.value, reply.status)

    async def _reply(self, route: Route, call: Call, request: Request) -> Reply:
        """Call the client; repeat it after each change while a caller waits for more."""
        assert route.call is not None
        on_storage = partial(self._storage.run, is_long=route.is_long)
        run = on_storage if route.on_storage else asyncio.to_thread
        called = partial(run, partial(route.call, call))
        if not (wait := call.values.get("wait")):
            with _noticing_end(request, call.gone.set):
                return await called()
        deadline = Deadline.after(wait)
        with (
            self._polls.taken(),
            self._changes.reading(call.values.get("id")) as reader,
            _noticing_end(request, lambda: reader.take_note(NOTHING)) as gone,
        ):
            while True:
                await reader.wait(0.0)
                reply = await called()
                if reply.is_final or deadline.expired or self._changes.over:
                    return reply
                note = await reader.wait(deadline.bounded())
                if gone.done():
                    return reply  # Nobody reads it.
                reader.take_note(note)


def _log_verb(request: Request, caller: Caller, status: int, id: str) -> None:
    done = printable(request.url.path)
    who = printable(caller.name) or "local"
    about = {"kind": "request", "caller": who, "path": done, "status": status, "request": id}
    _log.info("%s: POST %s: %d", who, done, status, extra=about)


@contextmanager
def _noticing_end(request: Request, ended: Callable[[], object]) -> Iterator[asyncio.Task[None]]:
    """Call `ended` once the client has closed its connection, or the block has ended. Yield a task
    that is done once the client has."""
    gone = asyncio.create_task(_has_gone(request))
    gone.add_done_callback(lambda _: ended())
    try:
        yield gone
    finally:
        gone.cancel()


async def _has_gone(request: Request) -> None:
    """Wait until the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def answering(handle: _Handler) -> _Handler:
    """Return a handler that answers an error of jrs by a problem."""

    async def answer(request: Request) -> Response:
        try:
            return await handle(request)
        except JrsError as error:
            return problem_answer(problem_of(error))

    return answer


async def _body(request: Request) -> bytes:
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > MOST_BODY:
            raise TooLarge(f"the body has more than {MOST_BODY:,} bytes")
    return found


async def _described(request: Request) -> Response:
    return json_answer(openapi.document(ROUTES))


async def _http_problem(request: Request, error: HTTPException) -> Response:
    path = printable(request.url.path)
    if is_for_people(request.headers, path):
        answer = plain_page(error.detail, path, error.status_code)
    else:
        answer = problem_answer(Problem(error.status_code, error.detail, path))
    answer.headers.update(error.headers or {})
    return answer


async def _failure(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, printable(request.url.path), exc_info=error)
    return problem_answer(problem_of(error))
