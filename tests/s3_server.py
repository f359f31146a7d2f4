"""A real server of S3's protocol for tests, which can be told to fail, and counts its requests.

    python -m tests.s3_server PORT [KEY]

With the public key of a service account it also answers requests as clients of Google Cloud Storage
send them: that service has the same protocol, with headers of other names and its own credentials.

Requests to ``/_faults`` set what fails: a JSON object with the fields of `Faults`. Those to
``/_requests`` return how many requests of each method there were, and begin to count again.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
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
    copies: bool = False
    """It does that to copies of objects alone."""
    stale: bool = False
    """Objects that were not there when they were first asked for are not there later, either."""


class Google:
    """Requests of clients of Google Cloud Storage, for a server of S3.

    Args:
        key: of the service account that may do everything; nobody else may do anything.
    """

    _SIGNED_BY_ANYBODY = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request"

    def __init__(self, key: RSAPublicKey) -> None:
        self._key = key

    def is_permitted(self, authorization: str) -> bool:
        """Return whether a token was signed with the key."""
        signed, _, signature = authorization.removeprefix("Bearer ").rpartition(".")
        padded = signature + "=" * (-len(signature) % 4)
        try:
            raw = base64.urlsafe_b64decode(padded)
            self._key.verify(raw, signed.encode(), PKCS1v15(), SHA256())
        except (ValueError, InvalidSignature):
            return False
        return True

    def translate(self, environ: dict[str, Any]) -> None:
        """Give the headers of a request the names that S3 has for them."""
        environ["HTTP_AUTHORIZATION"] = self._SIGNED_BY_ANYBODY
        if source := environ.pop("HTTP_X_GOOG_COPY_SOURCE", None):
            environ["HTTP_X_AMZ_COPY_SOURCE"] = source
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"


class Server:
    """The application: S3, with faults in front of it."""

    def __init__(self, google: Google | None = None) -> None:
        self._google = google
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
        authorization = environ.get("HTTP_AUTHORIZATION", "")
        if self._google is not None and authorization.startswith("Bearer"):
            if not self._google.is_permitted(authorization):
                start_response("401 Unauthorized", [("Content-Type", "application/xml")])
                return [b"<Error><Code>AuthenticationRequired</Code></Error>"]
            self._google.translate(environ)
            if method == "DELETE" and not self._exists(environ):
                environ["REQUEST_METHOD"] = "GET"  # Google says 404 then, and S3 does not.
        faults = self._faults
        is_copy = "HTTP_X_AMZ_COPY_SOURCE" in environ
        if method in faults.methods and (is_copy or not faults.copies):
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

    def _exists(self, environ: dict[str, Any]) -> bool:
        """Return whether the object that a request names exists."""
        statuses: list[str] = []
        asked = {**environ, "REQUEST_METHOD": "HEAD"}
        list(self._inner(asked, lambda status, headers, *more: statuses.append(status)))
        return statuses[0].startswith("200")


if __name__ == "__main__":
    google = None
    if len(sys.argv) > 2:
        public = load_pem_public_key(Path(sys.argv[2]).read_bytes())
        assert isinstance(public, RSAPublicKey)
        google = Google(public)
    run_simple("127.0.0.1", int(sys.argv[1]), Server(google), threaded=True)
