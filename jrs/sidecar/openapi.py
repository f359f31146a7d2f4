"""The description of the API by OpenAPI 3.1, made from the table of routes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jrs.sidecar.problems import CONTENT_TYPE
from jrs.sidecar.route_form import Param, Role, Route

VERSION = "1.1"
"""Of the API: the first number is in the paths; the second grows with each addition."""

_ERRORS = {
    "400": "the request cannot be read",
    "401": "a token is missing or wrong",
    "403": "the role is too small, or a page of another site asks",
    "404": "there is no such thing",
    "409": "refused; nothing was changed",
    "421": "not the name of this server",
    "422": "a value cannot be used",
    "503": "the backend does not answer; nothing was changed; see Retry-After",
    "504": "the outcome is unknown: read back before you repeat the call",
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the description of all routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "jrs",
            "version": VERSION,
            "description": "The jobs of one cluster. Each operation is one call of the client.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _PROBLEM},
        },
    }


_PROBLEM = {
    "type": "object",
    "description": "Problem details by RFC 9457.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}


def _operation(route: Route) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.said,
        "description": f"Stands for `{route.stands_for}`. Needs the role {route.role.value}.",
        "tags": ["read" if route.role is Role.READ else "operate"],
        "parameters": [_in_path(name) for name in route.in_path]
        + [_in_query(param) for param in route.query],
        "responses": _responses(route),
    }
    if route.method == "POST":
        made["requestBody"] = _body(route.body)
    return made


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _in_query(param: Param) -> dict[str, Any]:
    return {
        "name": param.name,
        "in": "query",
        "required": param.required,
        "description": param.said,
        "schema": param.schema(),
    }


def _body(params: Iterable[Param]) -> dict[str, Any]:
    params = list(params)
    required = [param.name for param in params if param.required]
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {one.name: {**one.schema(), "description": one.said} for one in params},
    }
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {"application/json": {"schema": schema}}}


def _responses(route: Route) -> dict[str, Any]:
    kind = route.produces
    content = {kind: {"schema": {} if kind == "application/json" else {"type": "string"}}}
    good = {"200": "done", **{str(status): said for status, said in route.statuses.items()}}
    problem = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        **{status: {"description": said, "content": content} for status, said in good.items()},
        **{status: {"description": said, "content": problem} for status, said in _ERRORS.items()},
    }
