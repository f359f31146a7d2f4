"""The forms of answers: JSON, a problem, a page of one sentence."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import HTMLResponse, Response

from jrs.sidecar.problems import CONTENT_TYPE, Problem


def json_answer(value: Any, status: int = 200, kind: str = "application/json") -> Response:
    """Return plain JSON, in ASCII as the command line prints it."""
    return Response(f"{json.dumps(value)}\n", status, media_type=kind)


def problem_answer(problem: Problem) -> Response:
    """Return a problem."""
    answer = json_answer(problem.body(), problem.status, CONTENT_TYPE)
    answer.headers.update(problem.headers)
    return answer


def is_for_people(headers: Mapping[str, str], path: str) -> bool:
    """Return whether an answer is read in a browser: it asks for a page, not for the API."""
    return "text/html" in headers.get("accept", "") and not path.startswith("/v1/")


def plain_page(title: str, said: str, status: int) -> Response:
    """Return a page of one sentence, for people that cannot be shown more."""
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<link rel="stylesheet" href="/static/jrs.css">'
        f"<title>{html.escape(title)}</title><main><h1>{html.escape(title)}</h1>"
        f"<p>{html.escape(said)}</p></main></html>",
        status,
    )
