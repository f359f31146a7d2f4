"""``python -m jrs``: the same as ``jrs``."""

from jrs.cli import main

main()
