"""Access: what is checked of every request before any route sees it, and what every answer says.

The name that a browser asked for has to be one of ours (DNS rebinding), the page that asks has to
be ours (requests across sites), and the caller has to be known. Probes need no caller.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jrs.contract.errors import InvalidInput
from jrs.sidecar.answers import is_for_people, plain_page, problem_answer
from jrs.sidecar.certificates import owner_of
from jrs.sidecar.problems import Problem
from jrs.sidecar.route_form import Role
from jrs.sidecar.tokens import Caller, Sessions, TokenFile

COOKIE = "jrs_session"
OPEN = ("/livez", "/readyz", "/login", "/static/")
"""Paths that need no caller; those with a slash at the end, all below them."""

_ID = "X-Request-Id"
_FIT_ID = re.compile(r"[A-Za-z0-9._:/-]{1,64}")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Access:
    """Gives every request its id, checks it, and adds the headers of every answer.

    Args:
        app: what answers.
        hosts: the names under which the server may be asked for.
        tokens: who may do what; None where only the user of the socket, or the owners of
            certificates, can connect: they may do everything. The owner of a certificate is known
            by its name, see `jrs.sidecar.certificates`.
        sessions: the browsers that are logged in.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], tokens: TokenFile | None, sessions: Sessions
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._tokens = tokens
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["jrs_request"] = id = _id_in(Headers(scope=scope))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[_ID] = id
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refusal(scope)
        answers = self._app if refused is None else refused
        await answers(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        problem = self._foreign(scope, headers)
        if problem is not None:
            return problem_answer(problem)
        if _is_open(scope["path"]):
            return None
        try:
            caller = self._caller(headers, owner_of(scope))
        except InvalidInput as error:
            return problem_answer(Problem(503, "Nobody can be let in", str(error)))
        if caller is None:
            return self._unknown(scope)
        scope["jrs_caller"] = caller
        scope["jrs_known"] = lambda: self._is_known(headers, owner_of(scope))
        return None

    def _is_known(self, headers: Headers, owner: str) -> bool:
        """Return whether the caller of a request that is being answered would still be let in."""
        try:
            return self._caller(headers, owner) is not None
        except InvalidInput:
            return False

    def _foreign(self, scope: Scope, headers: Headers) -> Problem | None:
        """Return what is wrong with the host, or with the page that the request comes from."""
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or name_of(host) not in self._hosts:
            return Problem(
                421, "Not the name of this server", "start jrs serve with --allow-host NAME"
            )
        own = f"{scope['scheme']}://{host.lower()}"
        origin = headers.get("origin")
        if origin is not None and origin.lower() != own:
            return Problem(403, "A page of another site asks", "only own pages may")
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "")
        follows = scope["method"] == "GET" and mode == "navigate"
        if site not in ("none", "same-origin") and not follows:
            return Problem(403, "A page of another site asks", "only own pages may")
        return None

    def _caller(self, headers: Headers, owner: str) -> Caller | None:
        if self._tokens is None:
            return Caller(owner, Role.OPERATE)
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._tokens.caller(token.strip())
        session = self._sessions.caller(cookie_of(headers))
        if session is not None:
            # The token may have been removed from the file, or have another role, since the login.
            caller = self._tokens.by_digest(session.token)
            if caller is not None:
                return caller
        return self._tokens.owner(owner) if owner else None

    def _unknown(self, scope: Scope) -> Response:
        if is_for_people(Headers(scope=scope), scope["path"]):
            return plain_page("Please log in", "Run “jrs open” and follow the link it prints.", 401)
        problem = Problem(401, "A token is missing or wrong", "send Authorization: Bearer TOKEN")
        problem.headers["WWW-Authenticate"] = 'Bearer realm="jrs"'
        return problem_answer(problem)


def _id_in(headers: Headers) -> str:
    """Return the id that the caller gave the request, or a new one."""
    given = headers.get(_ID, "")
    return given if _FIT_ID.fullmatch(given) else secrets.token_hex(8)


def name_of(host: str) -> str:
    """Return the name in the Host header, without its port."""
    host = host.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def cookie_of(headers: Headers) -> str:
    """Return the session in the cookies of a request; empty if there is none. A browser sends those
    of all other ports of the host as well, whatever their form."""
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def _is_open(path: str) -> bool:
    return any(path == one or (one.endswith("/") and path.startswith(one)) for one in OPEN)
