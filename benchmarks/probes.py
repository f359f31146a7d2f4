"""How fast a master answers its probe, with a backend that answers and with one that is frozen.

    python benchmarks/probes.py [--requests N] [--json]

One master on a real etcd, asked for ``/livez`` by one client, each time by a connection of its own,
as a kubelet does. For the second half etcd is under SIGSTOP.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

from jrs.testing.masters import Masters
from jrs.testing.servers.found import find_etcd

TARGET = 0.005
"""Seconds that 99 of 100 answers may take while the backend is frozen."""
_REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def ask(place: Path) -> float:
    """Return the seconds that an answer took."""
    began = time.perf_counter()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10.0)
        connection.connect(str(place))
        connection.sendall(_REQUEST)
        answer = b""
        while data := connection.recv(4096):
            answer += data
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"not alive: {answer[:100]!r}")
    return time.perf_counter() - began


def measured(place: Path, requests: int) -> dict[str, float]:
    """Return the milliseconds of so many answers."""
    seconds = sorted(ask(place) for _ in range(requests))
    return {
        "p50": statistics.median(seconds) * 1e3,
        "p99": seconds[requests * 99 // 100] * 1e3,
        "longest": seconds[-1] * 1e3,
    }


def trial(folder: Path, requests: int) -> dict[str, dict[str, float]]:
    with find_etcd() as etcd, Masters(etcd.url(), storage=folder, ttl=30.0) as masters:
        place = folder / "probes"
        masters.start("m1", options=["--listen", f"unix:{place}"])
        masters.event(lambda event: event.kind == "leading", "it leads")
        found = {"etcd answers": measured(place, requests)}
        for member in etcd:
            member.pause()
        try:
            found["etcd is frozen"] = measured(place, requests)
        finally:
            for member in etcd:
                member.resume()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=5000, help="of each half")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jrs-probes-") as folder:
        found = trial(Path(folder), options.requests)
    if options.json:
        json.dump(found, sys.stdout, indent=2)
        return
    for when, figures in found.items():
        print(
            f"{when:16}" + "".join(f"{name} {value:.2f} ms   " for name, value in figures.items())
        )
    met = "met" if found["etcd is frozen"]["p99"] < TARGET * 1e3 else "NOT met"
    print(f"target: p99 below {TARGET * 1e3:g} ms while it is frozen: {met}")


if __name__ == "__main__":
    main()
