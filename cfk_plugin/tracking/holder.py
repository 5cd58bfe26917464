"""Which process this is, and whether another one is gone."""

from __future__ import annotations

import os
import socket


def this_process() -> str:
    """Return a name of this process on this machine."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_gone(holder: str) -> bool:
    """Say whether a process of this machine has ended; of another machine's (or container's) nothing is known."""
    host, pid, started = holder.rsplit(":", 2)
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _started(int(pid)) != started


def _started(pid: int) -> str:
    """Return when a process started, as its number may be another's by now; empty where that cannot be said."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - no file of ours
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]
