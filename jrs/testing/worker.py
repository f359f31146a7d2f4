"""A real process with a handle on a backend, driven over pipes, to be killed, stopped or raced.

Each request and each reply is one line of JSON. `Worker` is the near end, `main` the far one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import IO, Any, Self

from jrs.contract import errors
from jrs.contract.backend import Backend
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Absent, Check, Create, Delete, Fence, Op, Record, Update
from jrs.store.backend_schemes import opener_of
from jrs.store.opening import open_backend

_OPS: dict[str, Callable[..., Op]] = {
    kind.__name__: kind for kind in (Create, Update, Delete, Check, Absent)
}


class Died(Exception):
    """The worker's process ended before it replied; its request may have taken effect."""


class Worker:
    """The near end of a worker process. It raises the errors of the worker's backend."""

    def __init__(
        self, url: str, cluster: str, *, before: str = "", prefix: Sequence[str] = ()
    ) -> None:
        """Start it.

        Args:
            before: Python code that the worker runs first, for example to break a system call.
            prefix: a command that runs the following command in place of itself.
        """
        code = f"{before}\nfrom jrs.testing.worker import main\nmain(*sys.argv[1:3])"
        process = subprocess.Popen(
            [*prefix, sys.executable, "-c", f"import sys\n{code}", url, cluster],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process: subprocess.Popen[bytes] | _Child = process
        self._requests: IO[bytes] = process.stdin
        self._replies: IO[bytes] = process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, name: str, *arguments: Any) -> None:
        """Send a request without waiting for the reply; fetch it by `receive`."""
        if self._requests.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(json.dumps([name, *arguments]).encode() + b"\n")
            self._requests.flush()

    def receive(self) -> Any:
        """Return the next reply, or raise the error in it."""
        line = b"" if self._replies.closed else self._replies.readline()
        if not line.endswith(b"\n"):
            raise Died(f"worker {self.pid} ended before it replied")
        reply = json.loads(line)
        if "error" in reply:
            raise _revived(reply)
        return reply["value"]

    def call(self, name: str, *arguments: Any) -> Any:
        """Send a request and return its reply."""
        self.send(name, *arguments)
        return self.receive()

    def open(self, url: str, cluster: str) -> None:
        """Use another backend, without closing the present one."""
        self.call("open", url, cluster)

    def commit(self, *ops: Op, fence: Fence | None = None) -> None:
        self.call("commit", packed(ops), packed_fence(fence))

    def get(self, key: str) -> Record | None:
        found = self.call("get", key)
        return None if found is None else Record(found[0], _bytes(found[1]), found[2])

    def scan(self, prefix: str) -> list[Record]:
        return [Record(key, _bytes(value), version) for key, value, version in
                self.call("scan", prefix)]  # fmt: skip

    def lead(self, candidate: str, ttl: float) -> Fence:
        """Campaign until the worker leads."""
        return Fence(*self.call("lead", candidate, ttl))

    def stop(self) -> None:
        """Stop the process; return once the kernel has stopped it."""
        os.kill(self.pid, signal.SIGSTOP)
        self.await_stopped()

    def await_stopped(self) -> None:
        """Return once any process has stopped it."""
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill -9, and return once it is gone."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._replies.close()

    def wait(self) -> int:
        """Return the exit status, or minus the number of the signal that ended it."""
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


class Nursery:
    """Starts workers in milliseconds, by forking a process that has imported everything."""

    def __init__(self) -> None:
        self._near, far = socket.socketpair()
        code = "import sys\nfrom jrs.testing.worker import nurse\nnurse(int(sys.argv[1]))"
        with far:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, str(far.fileno())], pass_fds=[far.fileno()]
            )

    def worker(self, url: str, cluster: str) -> Worker:
        """Start a worker: a process of its own."""
        worker = Worker.__new__(Worker)
        far_in, near_in = os.pipe()
        near_out, far_out = os.pipe()
        pid = int(self.ask(["fork", url, cluster], far_in, far_out))
        os.close(far_in)
        os.close(far_out)
        worker._process = _Child(self, pid)
        worker._requests = os.fdopen(near_in, "wb")
        worker._replies = os.fdopen(near_out, "rb")
        return worker

    def ask(self, request: list[Any], *fds: int) -> str:
        socket.send_fds(self._near, [json.dumps(request).encode()], fds)
        return self._near.recv(100).decode()

    def close(self) -> None:
        self._near.close()
        self._process.wait()


class _Child:
    """A process of a nursery, which is its parent and so alone can wait for it."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self._status: int | None = None

    def kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self._status is None:
            self._status = int(self._nursery.ask(["wait", self.pid]))
        return self._status


def packed(ops: tuple[Op, ...]) -> list[list[Any]]:
    """Return operations as JSON."""
    return [
        [type(op).__name__]
        + [value.decode("latin-1") if isinstance(value, bytes) else value for value in _values(op)]
        for op in ops
    ]


def packed_fence(fence: Fence | None) -> list[int] | None:
    return None if fence is None else [fence.epoch, fence.version]


def _values(op: Op) -> list[Any]:
    if isinstance(op, Create):
        return [op.key, op.value]
    if isinstance(op, Update):
        return [op.key, op.value, op.version]
    if isinstance(op, (Delete, Check)):
        return [op.key, op.version]
    return [op.key]


def _unpacked(packed_op: list[Any]) -> Op:
    name, key, *rest = packed_op
    return _OPS[name](key, *(_bytes(v) if isinstance(v, str) else v for v in rest))


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _revived(reply: dict[str, Any]) -> Exception:
    kind = getattr(errors, reply["error"], None)
    if kind is errors.Conflict:
        return errors.Conflict(_unpacked(reply["op"]), reply["message"])
    if kind is None:
        return RuntimeError(f"{reply['error']}: {reply['message']}")
    revived: Exception = kind(reply["message"])
    return revived


# -- the far end -------------------------------------------------------------------------------


class _Server:
    """The requests that a worker process serves: one method for each."""

    def __init__(self, url: str, cluster: str) -> None:
        self.backend: Backend = open_backend(url, cluster=cluster)
        self.leadership: Leadership | None = None
        self.queued: list[Future[None]] = []

    def open(self, url: str, cluster: str) -> None:
        self.backend.close()
        self.backend = open_backend(url, cluster=cluster)

    def commit(self, ops: list[list[Any]], fence: list[int] | None) -> None:
        self.backend.commit(
            *(_unpacked(op) for op in ops),
            fence=None if fence is None else Fence(fence[0], fence[1]),
        )

    def get(self, key: str) -> list[Any] | None:
        record = self.backend.get(key)
        return None if record is None else _listed(record)

    def scan(self, prefix: str) -> list[list[Any]]:
        return [_listed(record) for record in self.backend.scan(prefix)]

    def count(self, key: str, times: int) -> int:
        """Add one to the number under `key`, `times` times, in competition with others; return the
        number of refusals."""
        refused = 0
        while times:
            record = self.backend.get(key)
            assert record is not None
            try:
                self.backend.commit(Update(key, b"%d" % (int(record.value) + 1), record.version))
                times -= 1
            except errors.Conflict:
                refused += 1
        return refused

    def attempt(self, key: str, times: int) -> int:
        """Try `times` times to add one; return how many tries were acknowledged."""
        done = 0
        for _ in range(times):
            record = self.backend.get(key)
            assert record is not None
            try:
                self.backend.commit(Update(key, b"%d" % (int(record.value) + 1), record.version))
                done += 1
            except errors.Conflict:
                pass
        return done

    def pour(self, prefix: str) -> None:
        """Create PREFIX0, PREFIX1, … until killed; reply to each one once it is durable."""
        number = 0
        while True:
            self.backend.commit(Create(f"{prefix}{number}", b""))
            _reply({"value": number})
            number += 1

    def queue(self, prefix: str, times: int, fence: list[int] | None) -> None:
        """Begin to create PREFIX0, PREFIX1, … without waiting."""
        for number in range(times):
            self.queued.append(
                self.backend.commit_async(
                    Create(f"{prefix}{number}", b""),
                    fence=None if fence is None else Fence(fence[0], fence[1]),
                )
            )

    def settle(self) -> list[str]:
        """Wait for all queued commits; return how each ended: "done", or the error's name."""
        waited, self.queued = self.queued, []
        ends = [future.exception(60.0) for future in waited]
        return ["done" if error is None else type(error).__name__ for error in ends]

    def lead(self, candidate: str, ttl: float) -> list[int]:
        won = self.backend.campaign(candidate, ttl=ttl, stop=threading.Event())
        assert won is not None
        self.leadership = won
        return [won.epoch, won.fence.version]

    def lead_briefly(self, candidate: str, ttl: float) -> list[int]:
        fence = self.lead(candidate, ttl)
        self.resign()
        return fence

    def resign(self) -> None:
        if self.leadership is not None:
            self.leadership.resign()

    def lost(self, timeout: float) -> bool:
        """Wait until the leadership is known to be lost; return whether it is."""
        return self.leadership is None or self.leadership.lost.wait(timeout)

    def compact(self) -> None:
        """Make the backend rewrite its storage, if it can."""
        compact = getattr(self.backend, "compact", None)
        if compact is not None:
            compact()

    def run(self, source: str) -> None:
        """Execute Python here, with the server as `server`."""
        exec(source, {"server": self, "os": os, "signal": signal, "time": time})


def _listed(record: Record) -> list[Any]:
    return [record.key, record.value.decode("latin-1"), record.version]


def _reply(reply: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


def nurse(fd: int) -> None:
    """Fork workers and wait for them, as a `Nursery` asks."""
    with socket.socket(fileno=fd) as far:
        while True:
            data, fds, _, _ = socket.recv_fds(far, 4096, 2)
            if not data:
                return
            what, *arguments = json.loads(data)
            if what == "wait":
                status = os.waitstatus_to_exitcode(os.waitpid(arguments[0], 0)[1])
                far.send(b"%d" % status)
                continue
            opener_of(arguments[0])  # Or each worker would import its backend, in 100 ms.
            pid = os.fork()
            if not pid:
                far.close()
                os.dup2(fds[0], 0)
                os.dup2(fds[1], 1)
                os.closerange(3, 64)
                main(*arguments)
                os._exit(0)
            for each in fds:
                os.close(each)
            far.send(b"%d" % pid)


def main(url: str, cluster: str) -> None:
    """Serve requests until the near end closes the pipe."""
    server = _Server(url, cluster)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            _reply({"value": getattr(server, name)(*arguments)})
        except errors.Conflict as conflict:
            _reply({"error": "Conflict", "message": str(conflict), "op": packed((conflict.op,))[0]})
        except Exception as error:
            _reply({"error": type(error).__name__, "message": str(error)})
