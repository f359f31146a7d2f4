"""The examples of docs/chaos.md, run by pytest as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "chaos.md"


def save_examples(folder: Path) -> None:
    """Save each block of Python under the name in its first line."""
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name, f"a block has no name: {block[:60]}"
        (folder / name[1]).write_text(block)


def run_example(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest on saved examples; return its exit status and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, done.stdout
