"""Whether a process still runs."""

from __future__ import annotations

import psutil


def is_running(pid: int) -> bool:
    """One that has ended and waits for its parent to take note does not: in a container nobody may ever do that."""
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False
