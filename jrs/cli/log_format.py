"""How long-running commands log: for people, or one JSON object a line for programs."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import click

from jrs.contract.texts import printable

JSON = "json"
_ABOUT = ("kind", "job_id", "epoch", "stage", "caller", "path", "status", "request")
"""The attributes of records that a line has, where a record has them."""

log_format_option = click.option(
    "--log-format", type=click.Choice(["text", JSON]), default="text", show_default=True,
    help="Log for people, or one JSON object a line for programs.",
)  # fmt: skip


class _Lines(logging.Formatter):
    """Formats each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": record.created,
            "kind": record.name,
            "level": record.levelname.lower(),
            "message": printable(record.getMessage()),
        }
        line |= {name: getattr(record, name) for name in _ABOUT if hasattr(record, name)}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(log_format: str) -> None:
    """Have this process log to stderr in that format."""
    handler = logging.StreamHandler(sys.stderr)
    as_json = log_format == JSON
    handler.setFormatter(_Lines() if as_json else logging.Formatter(_FOR_PEOPLE))
    logging.basicConfig(handlers=[handler])


_FOR_PEOPLE = "%(asctime)s %(name)s %(message)s"
