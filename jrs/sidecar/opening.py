"""Asking a server for a one-time link."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from jrs.contract.errors import AccessDenied, InvalidInput, Unavailable
from jrs.contract.texts import shown
from jrs.sidecar.tokens import first_token

_PATIENCE = 10.0


def link(url: str, token_file: Path, ca: Path | None = None) -> str:
    """Return a link that logs one browser in, with the role of the first token of a file.

    Raises:
        InvalidInput: the URL or the token file cannot be used.
        AccessDenied: the server does not know the token.
        Unavailable: no server answers there.
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
        with error:
            status = error.code
        raise AccessDenied(f"{base} refuses the token: status {status}") from None
    except (OSError, ValueError, KeyError) as error:
        raise Unavailable(f"{base} does not answer as jrs serve does: {error}") from None
