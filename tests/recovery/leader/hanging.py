"""Resources for masters in processes of their own, given as ``hanging.py:function``."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import jrs


class Hanging(jrs.Resource):
    """A resource whose cleaning never ends."""

    name = "hanging"

    def clean(self, job_id: str) -> None:
        Path(os.environ["JRS_TEST_BEGUN"]).touch()
        threading.Event().wait()


def hanging() -> jrs.Resource:
    return Hanging()
