"""Swapping in a rescaled checkpoint, and completing a swap that a crash interrupted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .sync import sync


def complete_interrupted_rescale(checkpoint: Path) -> None:
    """Complete what a crash interrupted: move a finished rescaled checkpoint into place, and remove
    unfinished ones. Durable and idempotent; nothing of the job may run."""
    done, before = done_folder(checkpoint), checkpoint.with_name("ck.before")
    if done.is_dir():
        if checkpoint.is_dir() and any(checkpoint.iterdir()):
            shutil.rmtree(before, ignore_errors=True)
            os.rename(checkpoint, before)
        os.rename(done, checkpoint)
        sync(checkpoint.parent)
    shutil.rmtree(before, ignore_errors=True)
    shutil.rmtree(work_folder(checkpoint), ignore_errors=True)


def work_folder(checkpoint: Path) -> Path:
    return checkpoint.with_name("ck.rescaling")


def done_folder(checkpoint: Path) -> Path:
    return checkpoint.with_name("ck.rescaled")
