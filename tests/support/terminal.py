"""Runs a command in a terminal of its own, types into it, and prints what the terminal showed.

usage: terminal.py STEPS COMMAND...

STEPS is a JSON list of pairs: once the first text is shown, the second is typed. The exit code is the command's.
"""

import json
import os
import pty
import select
import signal
import sys
import time

PATIENCE_SECONDS = 60

steps, command = json.loads(sys.argv[1]), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(command[0], command)
shown, seen, deadline = b"", 0, time.monotonic() + PATIENCE_SECONDS
while True:
    ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
    if not ready:
        os.kill(child, signal.SIGKILL)
        sys.exit(f"the command did not end; the terminal showed {shown!r}")
    try:
        read = os.read(terminal, 65536)
    except OSError:  # Linux reports the end so
        read = b""
    if not read:
        break
    shown += read
    while steps and (at := shown.find(steps[0][0].encode(), seen)) >= 0:
        seen = at + len(steps[0][0])
        os.write(terminal, steps.pop(0)[1].encode())
sys.stdout.write(shown.decode())
sys.stdout.flush()
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
