"""Whether `jrs` takes a command line: its command, options and values, without running it."""

from __future__ import annotations

from collections.abc import Sequence

import click
import pytest

from jrs.cli import cli


def parse(words: Sequence[str]) -> None:
    """Fail unless `jrs` takes these words, the first of which is its own name."""
    assert words[0] == "jrs", words
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(click.Command, "invoke", lambda command, context: None)
        try:
            cli.main(list(words[1:]), prog_name="jrs", standalone_mode=False)
        except click.ClickException as error:
            pytest.fail(f"{' '.join(words)}: {error.format_message()}")
