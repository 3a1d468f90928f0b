"""Ports for servers that bind them later: a LangGraph server does so 10 s after it was started."""

import os
import random
import socket
import tempfile
import time
from pathlib import Path

# Below the ports that systems give to whoever asks for any: connections, and servers that print the port they got.
FIRST, END = 10_240, 32_768
# Whoever picked a port has bound it by then, or keeps it while its server is restarted.
KEPT_SECONDS = 30 * 60.0
# One folder for all processes of a user, and for client/ports.mjs. A file is named as the port that somebody picked.
PICKED = Path(tempfile.gettempdir(), f"threadway-ports-{os.getuid()}")


def free_port() -> int:
    """A port that nobody uses, and that nobody else gets from here for 30 minutes."""
    PICKED.mkdir(exist_ok=True)
    for port in random.sample(range(FIRST, END), END - FIRST):
        if picks(PICKED / str(port)) and is_free(port):
            return port
    raise OSError(f"all ports from {FIRST} to {END} are in use; {PICKED} lists those that were picked")


def picks(mark: Path) -> bool:
    """Whether this call is the one that picked the port."""
    try:
        if time.time() - mark.stat().st_mtime < KEPT_SECONDS:
            return False
        mark.unlink()
    except FileNotFoundError:
        pass
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
