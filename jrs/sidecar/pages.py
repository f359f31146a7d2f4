"""The pages: rendered on the server, readable without JavaScript."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from jrs.client.client import Client
from jrs.client.job_overview import job_overview
from jrs.client.listing import JobOrder
from jrs.client.overview import job_lines, overview
from jrs.client.stream_texts import StreamTexts
from jrs.contract.errors import JrsError
from jrs.contract.texts import bounded, one_line, printable, size_text, span, when
from jrs.records.model import JobStatus, ResultState
from jrs.sidecar.changes import Changes
from jrs.sidecar.problems import problem_of
from jrs.sidecar.reads import FILTERS
from jrs.sidecar.route_form import query_values
from jrs.sidecar.shared_reads import SharedReads
from jrs.sidecar.storage_threads import StorageThreads
from jrs.sidecar.timeline import timeline
from jrs.store.job_views import JobView

HERE = Path(__file__).parent
STATIC = HERE / "static"
_PER_PAGE = 50
_LOG_LINES = 40
_MOST_LOG = 64 * 1024
"""Characters of these lines: a progress bar may print one line of megabytes."""
_MOST_JSON = 16 * 1024
"""Characters of a result, or of a job's arguments, that a page shows; a link has the rest."""
_LONGEST_WHY = 240
"""Characters that a list has of why a job failed, waits or is held; the job's page has more."""

_FORM = tuple(
    param
    for param in FILTERS
    if param.name in ("status", "state", "tag", "prefix", "order", "after")
)
"""The filters of the list of jobs: those of the API, but for times and the size of a page."""

_Page = Callable[[Request], Awaitable[Response]]


class Pages:
    """Renders the pages of one cluster."""

    def __init__(self, client: Client, changes: Changes, storage: StorageThreads) -> None:
        self._client = client
        self._storage = storage
        self._overview = SharedReads(changes, lambda _: self._of_front(), 1)
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "json": _json,
            "line": _line,
            "without": _without,
            "moment": _moment,
            "path": lambda text: quote(text, ""),
            "screen": _screen,
            "short": _short,
            "size": size_text,
            "span": span,
        }

    def paths(self) -> list[tuple[str, _Page]]:
        """Return each page with its path."""
        return [
            ("/", self._front),
            ("/jobs", self._jobs),
            ("/jobs/{id}", self._job),
        ]

    async def _front(self, request: Request) -> Response:
        return await self._answer(request, "/v1/events", lambda: self._overview.get(""))

    async def _jobs(self, request: Request) -> Response:
        events = "/v1/events"
        render = partial(self._rendered, "jobs.html", request, events, self._of_jobs)
        return await self._answer(request, events, lambda: asyncio.to_thread(render))

    async def _job(self, request: Request) -> Response:
        events = f"/v1/jobs/{quote(request.path_params['id'], '')}/events"
        render = partial(self._rendered, "job.html", request, events, self._of_job)
        return await self._answer(request, events, lambda: self._storage.run(render))

    async def _answer(
        self, request: Request, events: str, page: Callable[[], Awaitable[bytes]]
    ) -> Response:
        try:
            return HTMLResponse(await page())
        except JrsError as error:
            problem = problem_of(error)
            text = self._text("problem.html", request.url.path, events, {"problem": problem})
            return HTMLResponse(text, problem.status)

    def _rendered(
        self, template: str, request: Request, events: str,
        values: Callable[[Request], dict[str, Any]],
    ) -> bytes:  # fmt: skip
        return self._text(template, request.url.path, events, values(request))

    def _text(self, template: str, here: str, events: str, values: dict[str, Any]) -> bytes:
        """Render a page. A large one takes a tenth of a second: call it where the values are read,
        in a thread."""
        fixed = {
            "cluster_id": self._client.backend.cluster,
            "events": events,
            "here": here,
        }
        return self._templates.get_template(template).render(**fixed, **values).encode()

    # -- what they show --------------------------------------------------------------------

    def _of_front(self) -> bytes:
        return self._text("front.html", "/", "/v1/events", {"overview": overview(self._client)})

    def _of_jobs(self, request: Request) -> dict[str, Any]:
        from_form = [(key, value) for key, value in request.query_params.multi_items() if value]
        asked = query_values(from_form, _FORM)
        order = JobOrder(asked["order"]) if asked["order"] else None
        views = self._client.views(
            status=JobStatus(asked["status"]) if asked["status"] else None,
            state=ResultState(asked["state"]) if asked["state"] else None,
            order=order,
            tag=asked["tag"],
            prefix=asked["prefix"],
            after=asked["after"],
        )
        behind: list[str] = []

        def noted() -> Iterator[JobView]:
            for view in islice(views, _PER_PAGE):
                behind.append((order or JobOrder.ID).after(view))
                yield view

        lines = job_lines(self._client, noted())
        kept = {key: value for key, value in asked.items() if value and key != "after"}
        more = ""
        if next(views, None) is not None:
            more = f"/jobs?{urlencode({**kept, 'after': behind[-1]})}"
        return {
            "lines": lines,
            "asked": asked,
            "choices": {param.name: param.choices for param in _FORM},
            "more": more,
            "first": f"/jobs?{urlencode(kept)}" if asked["after"] else "",
        }

    def _of_job(self, request: Request) -> dict[str, Any]:
        job_id = request.path_params["id"]
        found = job_overview(self._client, job_id)
        entry = found.view.entry
        result = entry.result if entry is not None else None
        return {
            "view": found.view,
            "line": found.line,
            "result": result,
            "reason": found.reason,
            "explained": found.explained,
            "history": found.history,
            "timeline": Markup(timeline(found)),
            "payload": "" if result is None else _json(result.payload, indent=2),
            "streams": [StreamTexts.of(one, found.at) for one in found.streams],
            "snapshots": found.snapshots_problem or found.snapshots,
            "log": _or_none(lambda: self._log(job_id)),
            "descendants": self._client.job(job_id).descendants(),
            "steps": found.steps,
        }

    def _log(self, job_id: str) -> list[tuple[str, str]]:
        parts = self._client.job(job_id).logs(tail=_LOG_LINES)
        texts: dict[str, str] = {}
        for part in parts:
            name = f"attempt {part.attempt}, std{part.stream}"
            texts[name] = texts.get(name, "") + part.data.decode(errors="replace")
        return [(name, _screen(text[-_MOST_LOG:])) for name, text in texts.items()]


def _or_none(read: Callable[[], Any]) -> Any:
    """Return what can be read; a text that says why it cannot."""
    try:
        return read()
    except JrsError as error:
        return printable(bounded(str(error)))


def _json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, in the letters in which it was written."""
    text = _screen(json.dumps(value, indent=indent, ensure_ascii=False))
    return text if len(text) <= _MOST_JSON else f"{text[:_MOST_JSON]}\n…"


def _screen(text: str) -> str:
    """Return a log without control characters, line by line."""
    return "\n".join(printable(one.expandtabs(4)) for one in text.rstrip("\n").split("\n"))


def _line(text: str) -> str:
    return printable(one_line(bounded(text, 2000)))


def _short(text: str, longest: int = _LONGEST_WHY) -> str:
    """Return the beginning of a text: lists have to be seen at a glance."""
    said = printable(one_line(bounded(text)))
    return said if len(said) <= longest else f"{said[:longest]}…"


def _without(said: str, status: str) -> str:
    """Return a text that stands next to a status, without that word at its beginning."""
    first, _, rest = said.partition(" ")
    return rest if rest and first.rstrip(":;,") == status.lower() else said


def _moment(stamp: float) -> Markup:
    """Return a moment for people and for machines."""
    if not stamp:
        return Markup("–")
    said = when(stamp).removesuffix(" UTC")
    return Markup('<time datetime="{}Z">{}</time>').format(said.replace(" ", "T"), said)
