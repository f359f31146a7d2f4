"""Logging a browser in: a one-time link, and the cookie that it sets."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from jrs.sidecar.access import COOKIE, cookie_of
from jrs.sidecar.answers import json_answer, plain_page
from jrs.sidecar.tokens import LINK_LASTS, SESSION_LASTS, Caller, Sessions


def paths(sessions: Sessions, *, secure: bool) -> list[Route]:
    """Return the routes of logging in and out."""

    async def link(request: Request) -> Response:
        caller: Caller = request.scope["jrs_caller"]
        code = sessions.link(caller)
        return json_answer({"path": f"/login?code={code}", "lasts": LINK_LASTS}, 201)

    async def login(request: Request) -> Response:
        if request.method == "HEAD":  # What checks links must not use this one up.
            return plain_page("A link is opened by GET", "It works once.", 405)
        session = sessions.open(request.query_params.get("code", ""))
        if session is None:
            said = "A link works once, for a minute. Run “jrs open” for another one."
            return plain_page("This link does not work any more", said, 403)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE, session, max_age=int(SESSION_LASTS), path="/", secure=secure,
            httponly=True, samesite="strict",
        )  # fmt: skip
        return answer

    async def logout(request: Request) -> Response:
        sessions.end(cookie_of(request.headers))
        answer = plain_page("You are logged out", "Run “jrs open” to log in again.", 200)
        answer.delete_cookie(COOKIE, path="/")
        return answer

    return [
        Route("/v1/login-link", link, methods=["POST"]),
        Route("/login", login, methods=["GET"]),
        Route("/logout", logout, methods=["POST"]),
    ]
