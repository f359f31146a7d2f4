"""Addresses on the command line: ``unix:/run/jrs/master.sock`` or ``HOST:PORT``."""

from __future__ import annotations

from typing import Any

import click

from jrs.contract.errors import InvalidInput
from jrs.contract.listening import Address


class Listen(click.ParamType):  # type: ignore[type-arg]
    """An address to listen at, or to connect to."""

    name = "address"

    def convert(self, value: Any, param: Any, ctx: Any) -> Address:
        if isinstance(value, Address):
            return value
        try:
            return Address.of(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


LISTEN = Listen()
