"""The directive ``transitions``: puts a table of `jrs.store.stop_transitions` into the page."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from jrs.store import stop_transitions


def lines(table: Mapping[enum.Enum, Mapping[enum.Enum, enum.Enum]]) -> Iterator[str]:
    """Yield the table as lines of reStructuredText."""
    yield from (".. list-table::", "   :header-rows: 1", "")
    yield from ("   * - step", "     - event", "     - next step")
    for step, events in table.items():
        for number, (event, after) in enumerate(events.items()):
            yield f"   * - {step.value if not number else ''}"
            yield f"     - {event.value}"
            yield f"     - {'the same' if after is step else after.value}"


class Transitions(SphinxDirective):
    """``.. transitions:: STOP``"""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        table = getattr(stop_transitions, self.arguments[0])
        found = nodes.section()
        self.state.nested_parse(StringList(list(lines(table)), "transitions"), 0, found)
        return found.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("transitions", Transitions)
    return {"parallel_read_safe": True}
