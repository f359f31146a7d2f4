"""The examples run as their first lines say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jrs
from jrs.testing.masters import Masters

from .support import BOUND

ROOT = Path(__file__).parents[2]


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=BOUND
    )


def test_orders(tmp_path: Path) -> None:
    """`jrs submit … examples/orders.py:orders --wait` prints the result, the second time, too."""
    url = (tmp_path / "store").as_uri()
    submit = ["-m", "jrs", "--backend", url, "submit", "orders-1", "examples/orders.py:orders"]
    with Masters(url) as masters:
        masters.start("m1")
        once = call(*submit, "--arg", "n=1000", "--wait")
        again = call(*submit, "--arg", "n=1000", "--wait", "--existing")
        result = jrs.JobResultStore(masters.backend).wait("orders-1", BOUND)

    assert once.returncode == again.returncode == 0, once.stderr + again.stderr
    assert again.stdout == once.stdout
    assert result.attempt == 1
    assert (result.payload["orders"], result.payload["customers"]) == (1000, 97)
    assert len(result.payload["best"]) == 3


def test_driver(tmp_path: Path) -> None:
    """`python examples/driver.py URL` prints the answer, and a second replica the stored one."""
    url = (tmp_path / "store").as_uri()
    once = call("examples/driver.py", url)
    again = call("examples/driver.py", url)
    answer = {"rows": 100_000, "buckets": {str(bucket): 10_000 for bucket in range(10)}}

    assert once.returncode == again.returncode == 0, once.stderr + again.stderr
    assert json.loads(once.stdout) == json.loads(again.stdout) == answer


def test_chaos() -> None:
    """`python examples/chaos.py` kills a leader and finds the undisturbed result."""
    done = call("examples/chaos.py")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "attempt 2" in done.stdout
    assert "skipped:     ['generate']" in done.stdout
