"""Resources for masters in processes of their own, given as ``exiting.py:function``."""

from __future__ import annotations

import threading

import jrs


class Hanging(jrs.Resource):
    """A resource whose cleaning never ends."""

    name = "hanging"

    def clean(self, job_id: str) -> None:
        threading.Event().wait()


def hanging() -> jrs.Resource:
    return Hanging()
