"""Asking a server for a one-time link."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from jrs.contract.errors import AccessDenied, InvalidInput, JrsError, Unavailable
from jrs.contract.texts import bounded, one_line, printable, shown
from jrs.sidecar.tokens import first_token

_PATIENCE = 10.0
_MOST = 1 << 16
"""Bytes of a refusal that are read."""


def link(url: str, token_file: Path, ca: Path | None = None) -> str:
    """Return a link that logs one browser in, with the role of the first token of a file.

    Raises:
        InvalidInput: the URL or the token file cannot be used; or the server says so.
        AccessDenied: the server does not let the token in.
        Unavailable: no server answers there, or it cannot answer now.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidInput(
            f"not the address of a page: {shown(url)}; write http://127.0.0.1:8080. A browser "
            "cannot open a socket in a folder: listen at 127.0.0.1:PORT with --token-file"
        )
    base = f"{parts.scheme}://{parts.netloc}"
    asked = urllib.request.Request(
        f"{base}/v1/login-link",
        method="POST",
        headers={"Authorization": f"Bearer {first_token(token_file)}"},
    )
    try:
        context = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
        with urllib.request.urlopen(asked, timeout=_PATIENCE, context=context) as answer:
            return f"{base}{json.load(answer)['path']}"
    except urllib.error.HTTPError as error:
        raise _refusal(base, error) from None
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException) as error:
        raise Unavailable(f"{base} does not answer as jrs serve does: {error}") from None


def _refusal(base: str, answer: urllib.error.HTTPError) -> JrsError:
    """Return what an answer without a link means, in the words of the server if it is ours."""
    status, said = answer.code, ""
    try:
        with answer:
            problem = json.loads(answer.read(_MOST))
        said = printable(one_line(bounded(f"{problem['title']}: {problem['detail']}")))
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException):
        pass  # The answer of another program, or of a proxy.
    told = f"status {status}" if not said else f"{said} (status {status})"
    if status in (401, 403):
        return AccessDenied(f"{base} refuses the token: {told}")
    if not said:
        return Unavailable(f"{base} does not answer as jrs serve does: {told}")
    if status >= 500:
        return Unavailable(f"{base} cannot answer now: {told}")
    return InvalidInput(f"{base} refuses the request: {told}")
