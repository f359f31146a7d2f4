"""The command line's reference: each command's help, as click has it, put into the page."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from jrs.cli import cli


def commands(group: click.Group = cli, name: str = "jrs") -> Iterator[tuple[str, click.Command]]:
    """Yield each command by its whole name, with those of its groups behind it."""
    with click.Context(group) as context:
        for part in group.list_commands(context):
            command = group.get_command(context, part)
            assert command is not None
            yield f"{name} {part}", command
            if isinstance(command, click.Group):
                yield from commands(command, f"{name} {part}")


def paragraphs(text: str) -> Iterator[nodes.Node]:
    """Yield a help text as nodes; click keeps the lines of a paragraph that begins with \\b."""
    for part in inspect.cleandoc(text).split("\n\n"):
        if part.startswith("\b"):
            yield nodes.literal_block(part, part.removeprefix("\b").strip("\n"), language="console")
        else:
            yield nodes.paragraph(part, " ".join(part.split()))


def options(command: click.Command, name: str) -> Iterator[nodes.Node]:
    """Yield what a command is called with."""
    with click.Context(command, info_name=name) as context:
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        rows = [row for param in command.params if (row := param.get_help_record(context))]
    yield nodes.literal_block(usage, usage, language="text")
    if rows:
        items = nodes.definition_list()
        for option, text in rows:
            term = nodes.term("", "", nodes.literal(option, option))
            meaning = nodes.definition("", nodes.paragraph(text, text))
            items += nodes.definition_list_item("", term, meaning)
        yield items


class Commands(SphinxDirective):
    """``jrs-commands``: a section for each command of ``jrs``."""

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for name, command in commands():
            section = nodes.section(ids=[name.replace(" ", "-")])
            section += nodes.title(name, name)
            section += list(paragraphs(command.help or ""))
            section += list(options(command, name))
            section += list(paragraphs(command.epilog or ""))
            found.append(section)
        return found


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("jrs-commands", Commands)
    return {"parallel_read_safe": True}
