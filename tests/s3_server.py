"""A real server of S3's protocol for tests, which can be told to fail, and counts its requests.

    python -m tests.s3_server PORT

Requests to ``/_faults`` set what fails: a JSON object with the fields of `Faults`. Those to
``/_requests`` return how many requests of each method there were, and begin to count again.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import attrs
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


@attrs.define
class Faults:
    """What the server does to requests, from now on."""

    status: int = 0
    """It answers with this status; 0: it works."""
    code: str = "SlowDown"
    delay: float = 0.0
    """Seconds before each answer."""
    methods: list[str] = attrs.field(factory=lambda: ["GET", "PUT", "POST", "DELETE", "HEAD"])
    """The methods that it does that to."""
    stale: bool = False
    """Objects that were not there when they were first asked for are not there later, either."""


class Server:
    """The application: S3, with faults in front of it."""

    def __init__(self) -> None:
        self._inner: Any = DomainDispatcherApplication(create_backend_app)
        self._faults = Faults()
        self._requests: Counter[str] = Counter()
        self._missing: set[str] = set()
        self._lock = threading.Lock()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/_faults":
            length = int(environ.get("CONTENT_LENGTH") or 0)
            self._faults = Faults(**json.loads(environ["wsgi.input"].read(length) or "{}"))
            start_response("200 OK", [])
            return [b""]
        if path == "/_requests":
            with self._lock:
                counted, self._requests = self._requests, Counter()
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(counted).encode()]
        with self._lock:
            self._requests[method] += 1
        faults = self._faults
        if method in faults.methods:
            time.sleep(faults.delay)
            if faults.status:
                text = f"<Error><Code>{faults.code}</Code><Message>told to fail</Message></Error>"
                start_response(f"{faults.status} Told", [("Content-Type", "application/xml")])
                return [text.encode()]
        if faults.stale and method == "GET" and path in self._missing:
            start_response("404 Not Found", [("Content-Type", "application/xml")])
            return [b"<Error><Code>NoSuchKey</Code></Error>"]

        def started(status: str, headers: Any, *more: Any) -> Any:
            if method == "GET" and status.startswith("404"):
                self._missing.add(path)
            return start_response(status, headers, *more)

        found: Iterable[bytes] = self._inner(environ, started)
        return found


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), Server(), threaded=True)
