"""``python -m jrs``, and the program ``jrs``."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. An interrupt while its modules are loaded is told as any other; not so
    one while `jrs` itself is loaded, which Python imports first."""
    try:
        from jrs.cli import main as run  # An interrupt may come while it loads.

        run()
    except KeyboardInterrupt:
        print("jrs: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
