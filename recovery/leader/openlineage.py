"""OpenLineage: sends what happens to attempts to a program that collects lineage.

What an event says depends on the history alone, and not on the clock or the version of jrs.
Where it is sent is OpenLineage's own configuration.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import Any

from jrs.contract.errors import InvalidInput
from jrs.contract.masks import masked
from jrs.contract.texts import bounded, error_text, one_line

from ..rules.lineage_runs import RunEvent, RunState, namespace, run_id
from .lineage_export import EventRefused, NotTaken

_PRODUCER = "https://pypi.org/project/jrs/"
_REFUSED = {400, 413, 422}
"""The answers to an event that no later try can change. All others have a cause that may go away,
such as a wrong address, a wrong key, or a receiver that is down."""
_LATE = {"async_http", "console", "noop"}
"""Transports that return before an event was delivered, or deliver none."""


class OpenLineage:
    """Sends the steps of a cluster's runs, by the transport that OpenLineage is configured with.

    Raises:
        InvalidInput: OpenLineage is not installed, or its configuration cannot be used.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        try:
            # An extra, which need not be installed.
            from openlineage.client import OpenLineageClient, event_v2
            from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
        except ImportError:
            raise InvalidInput(
                "the export to OpenLineage needs openlineage-python: pip install 'jrs[openlineage]'"
            ) from None
        # It logs each event that a receiver has not taken; an event of jrs says so once.
        logging.getLogger("openlineage").addHandler(logging.NullHandler())
        self._events: Any = event_v2
        self._error: Any = ErrorMessageRunFacet
        before = dict(os.environ)
        try:
            self._client = OpenLineageClient()
            transport: Any = self._client.transport
        except Exception as error:
            why = masked(one_line(str(error)))
            raise InvalidInput(
                f"OpenLineage's configuration cannot be used: {bounded(why)}"
            ) from None
        finally:
            # It sets variables of its own, which would configure OpenLineage in jobs, too.
            for name in os.environ.keys() - before.keys():
                del os.environ[name]
        _check_delivers(transport)

    def send(self, event: RunEvent) -> None:
        """Send an event; return once the receiver has taken it.

        Raises:
            NotTaken: it has not; it is unknown whether it has the event.
            EventRefused: it never takes this event.
        """
        try:
            self._client.emit(self._made(event))
        except Exception as error:
            why = bounded(masked(one_line(error_text(error))))
            kind = EventRefused if _status(error) in _REFUSED else NotTaken
            raise kind(why) from error

    def _made(self, event: RunEvent) -> Any:
        facets = {}
        if event.state is RunState.FAIL:
            facets["errorMessage"] = self._error(
                message=event.why, programmingLanguage="PYTHON", producer=_PRODUCER
            )
        run = run_id(self._cluster, event.job_id, event.attempt)
        return self._events.RunEvent(
            eventType=self._events.RunState(event.state.value),
            eventTime=datetime.fromtimestamp(event.at, UTC).isoformat(timespec="microseconds"),
            run=self._events.Run(runId=run, facets=facets),
            job=self._events.Job(namespace=namespace(self._cluster), name=event.job_id),
            producer=_PRODUCER,
        )


def _status(error: BaseException | None) -> int | None:
    """Return the status of the HTTP response that has led to an error; None if there is none."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
        error = error.__cause__ or error.__context__
    return None


def _check_delivers(transport: Any) -> None:
    """Raise `InvalidInput` unless each event was delivered when the transport returns."""
    kind = transport.kind
    if kind == "console":
        raise InvalidInput(
            "the export to OpenLineage has nowhere to send events: set OPENLINEAGE_URL, or name a "
            "file with the transport by OPENLINEAGE_CONFIG"
        )
    if kind == "composite":
        if transport.config.continue_on_failure or not transport.config.continue_on_success:
            raise InvalidInput(
                "OpenLineage's transport composite may leave a receiver out: set "
                "continue_on_failure to false and continue_on_success to true"
            )
        for one in transport.transports:
            _check_delivers(one)
    elif kind in _LATE:
        raise InvalidInput(
            f"OpenLineage's transport {kind} does not say whether an event was delivered: use "
            "http, or another one that does"
        )
