"""Tells whether a process is still running."""

from __future__ import annotations

import psutil


def is_running(pid: int) -> bool:
    """Return whether a process is running. A zombie is not: in a container, no parent may ever wait for it."""
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False
