"""The probes of the API's own process: it turns, and it reaches the backend."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from jrs.client.client import Client
from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError
from jrs.records import keys

_PATIENCE = 2.0
"""Seconds that the backend has for its answer."""


def paths(client: Client) -> list[Route]:
    """Return the routes of the probes. They need no token, and tell nothing."""

    def reaches() -> bool:
        try:
            client.backend.get(keys.EPOCH, deadline=Deadline.after(_PATIENCE))
        except JrsError:
            return False
        return True

    asking: list[asyncio.Task[bool]] = []

    async def ready(request: Request) -> Response:
        # One question at a time: frequent probes must not fill the threads.
        if not asking or asking[0].done():
            asking[:] = [asyncio.create_task(asyncio.to_thread(reaches))]
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                if await asyncio.shield(asking[0]):
                    return PlainTextResponse("yes\n")
        return PlainTextResponse("the backend does not answer\n", 503)

    async def live(request: Request) -> Response:
        return PlainTextResponse("yes\n")

    return [Route("/livez", live), Route("/readyz", ready)]
