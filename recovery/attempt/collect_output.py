"""Collecting the output of finished stages, to publish it in one rename."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from jrs.contract.errors import Fenced, InvalidInput
from jrs.records.model import Json

from ..checkpoint_format.sink_log import counted
from ..files import transfer
from ..files.disk_errors import GONE, unavailable
from ..files.safe_listing import everything_below, is_folder


def collect(outputs: Sequence[tuple[str, Path]], staging: Path) -> Json:
    """Link the output of stages into a staging folder; return the number of files and bytes.

    Args:
        outputs: stages and the folders of their output. The output of a single stage is linked as
            it is; of several stages, each has a folder of its own.

    Raises:
        InvalidInput: a stage has no output, or its output contains links.
        Fenced: a newer leader has renamed the epoch's folder.
        Unavailable: the disk is full, or a similar error; the stage is not finished.
    """
    files = size = 0
    try:
        with unavailable(f"{staging} cannot be filled", PermissionError):
            staging.rmdir()
            staging.mkdir()  # With the default permissions, unlike staging.
            for name, folder in outputs:
                if not is_folder(folder):
                    raise InvalidInput(f"stage {name!r} has no output to publish")
                links = [path for path in everything_below(folder) if path.is_symlink()]
                if links:
                    raise InvalidInput(f"{links[0]} is a link: links are not published; remove it")
                for source in counted(folder):
                    top = staging / name if len(outputs) > 1 else staging
                    target = top / source.relative_to(folder)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if not transfer.link_or_copy(source, target):
                        target.chmod(stat.S_IMODE(source.stat().st_mode))
                    files, size = files + 1, size + source.stat().st_size
    except GONE:
        if is_folder(staging.parent):
            raise
        raise Fenced(f"{staging.parent} is gone: its epoch was replaced") from None
    return {"files": files, "bytes": size}
