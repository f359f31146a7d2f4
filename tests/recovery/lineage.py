"""A receiver of OpenLineage's events: a real HTTP server, which a test can have misbehave."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jrs.recovery.rules.lineage_runs import run_id
from tests.support import BOUND

ENDS = ("COMPLETE", "FAIL", "ABORT")


class Receiver:
    """Keeps the body of each request.

    Attributes:
        status: what is answered.
        silent: while it is set, no request is answered.
        on_body: called with each body, once it is kept, and before it is answered.
    """

    def __init__(self, port: int = 0) -> None:
        self.bodies: list[bytes] = []
        self.refused = 0
        self.status = 201
        self.silent = threading.Event()
        self.on_body: Callable[[bytes], None] = lambda body: None
        self._closing = threading.Event()
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        while self.silent.is_set() and not self._closing.is_set():
            self._closing.wait(0.05)
        status = self.status
        with self._lock:
            if status < 300:
                self.bodies.append(body)
                self.on_body(body)
            else:
                self.refused += 1
        try:
            request.send_response(status)
            request.end_headers()
        except OSError:
            pass  # The sender was killed.

    @property
    def events(self) -> list[dict[str, Any]]:
        """What was received, each event once, in the order of its first arrival."""
        return [json.loads(body) for body in dict.fromkeys(self.bodies)]

    def runs(self, cluster: str, job_id: str, attempts: int) -> list[list[str]]:
        """Return the states of each of a job's first attempts, in the order of their arrival."""
        found = defaultdict(list)
        for event in self.events:
            found[event["run"]["runId"]].append(event["eventType"])
        return [found[run_id(cluster, job_id, number + 1)] for number in range(attempts)]

    def ends(self) -> int:
        return sum(event["eventType"] in ENDS for event in self.events)

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def without_retries(folder: Path, url: str) -> dict[str, str]:
    """Return the environment of a master that waits for each answer, however slow this process is,
    and does not try again by OpenLineage's own means."""
    path = folder / "openlineage.yml"
    options = f"type: http, url: '{url}', timeout: {BOUND}, retry: {{total: 0}}"
    path.write_text(f"transport: {{{options}}}\n")
    return {"OPENLINEAGE_CONFIG": str(path)}
