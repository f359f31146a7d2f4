"""The log of a job: the logger `jrs.job`, with the job and its attempt in every record.

A process that has configured no logging prints the records to stderr; for an attempt in a process
of its own, that is the attempt's log. As soon as the process has a handler of its own for them,
that handler alone gets them: `logging.basicConfig()` in a job works as in any program.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import MutableMapping
from typing import Any

from jrs.contract.masks import masked

from .context import AttemptContext

_FORMAT = "%(asctime)s %(levelname)s %(job_id)s, attempt %(attempt)s: %(message)s"
_UNKNOWN = {"job_id": "-", "attempt": "-"}
"""For records that were not logged by `Job.log`."""


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """Logs as `jrs.job`; each record has the attributes ``job_id``, ``attempt`` and ``epoch``."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the attempt to the record, and keep what the caller has given as `extra`."""
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **(self.extra or {})}}


def log_of(context: AttemptContext) -> JobLog:
    """Return the log of an attempt."""
    about = {"job_id": context.job_id, "attempt": context.attempt, "epoch": context.epoch}
    return JobLog(_LOGGER, about)


class _UnlessConfigured(logging.Handler):
    """Prints to stderr the records that no handler of the application gets."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        if _is_handled(self._logger):
            return
        try:
            print(masked(self.format(record)), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


class _NeverDisabled(logging.Logger):
    """A logger that the configuration of an application does not disable because it does not name
    it: `logging.config.dictConfig` does so by default with each logger that exists before. Its
    level and its handlers can be configured."""

    @property
    def disabled(self) -> bool:
        return False

    @disabled.setter
    def disabled(self, value: bool) -> None:
        pass


_SILENT = (logging.NullHandler, _UnlessConfigured)


def _is_handled(logger: logging.Logger | None) -> bool:
    """Return whether the logger or one above it has a handler that is not one of ours."""
    while logger is not None:
        if any(type(one) not in _SILENT for one in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def printed(name: str, formatter: logging.Formatter) -> logging.Logger:
    """Return a logger whose records, from INFO up, are printed to stderr in a process that has
    configured no logging."""
    logger = logging.getLogger(name)
    logger.__class__ = _NeverDisabled  # It may exist already: a name has one logger.
    handler = _UnlessConfigured(logger)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)  # Else the root logger would drop it: it begins at WARNING.
    return logger


def _formatter() -> logging.Formatter:
    formatter = logging.Formatter(_FORMAT, datefmt="%Y-%m-%d %H:%M:%S", defaults=_UNKNOWN)
    formatter.converter = time.gmtime  # As the master's own lines.
    return formatter


_LOGGER = printed("jrs.job", _formatter())
