#!/usr/bin/env python3
"""Installs what the integration tests need, runs one command between a started and a stopped LangGraph server and threadway.

usage: servers.py [--upstream-only] COMMAND [ARG...]

COMMAND finds the servers in LANGGRAPH_URL and THREADWAY_URL. THREADWAY_BIN names a built binary; without it
`cargo build --release` makes one. Everything installed or written lies in integration/.cache.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
LOGS = CACHE / "logs"
UPSTREAM = HERE / "upstream" / "python"
CLIENT = HERE / "client"

LANGGRAPH_READY_SECONDS = 60.0  # 3 s on an idle machine, 24 s seen on a busy one
THREADWAY_READY_SECONDS = 10.0
THREADWAY_STOP_SECONDS = 5.0
POLL_SECONDS = 0.05
LOG_LINES_SHOWN = 30

LANGGRAPH_ENVIRONMENT = {
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_API_KEY": "",
    "LANGCHAIN_API_KEY": "",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LOG_COLOR": "false",
    "NO_COLOR": "1",
    "PYTHONUNBUFFERED": "1",
}


class Failed(Exception):
    """A step failed; the log, if there is one, says why."""

    def __init__(self, message: str, log: Path | None = None):
        super().__init__(message)
        self.log = log


# ---------------------------------------------------------------- install
def install(name: str, lock: Path, directory: Path, commands: list[list[str]], before=None) -> None:
    """Run the commands in an empty directory, unless its stamp says that this lock file was installed there."""
    stamp = directory / "stamp"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if before:
        before()
    log = LOGS / f"install-{name}.log"
    with step(f"install {name}"), log.open("w") as out:
        for command in commands:
            if subprocess.run(command, cwd=directory, stdout=out, stderr=subprocess.STDOUT).returncode != 0:
                raise Failed(f"`{' '.join(command[:4])} ...` failed", log)
    stamp.write_text(digest)


def install_langgraph() -> Path:
    venv = CACHE / "python"
    lock = UPSTREAM / "requirements.lock.txt"
    install("langgraph", lock, venv, [
        [sys.executable, "-m", "venv", "."],
        # The lock file is the whole closure: nothing is left to resolve.
        ["bin/python", "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "-r", str(lock)],
    ])
    return venv / "bin" / "langgraph"


def install_client() -> None:
    directory = CACHE / "client"

    def copy() -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(CLIENT / name, directory)

    install("client", CLIENT / "package-lock.json", directory,
            [["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]], before=copy)
    link = CLIENT / "node_modules"
    if not link.is_symlink():
        link.symlink_to(Path("..") / ".cache" / "client" / "node_modules")


def build_threadway() -> Path:
    if "THREADWAY_BIN" in os.environ:
        return Path(os.environ["THREADWAY_BIN"]).resolve()
    with step("build threadway"):
        if subprocess.run(["cargo", "build", "--release"], cwd=HERE.parent).returncode != 0:
            raise Failed("`cargo build --release` failed")
    return HERE.parent / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "threadway"


# ---------------------------------------------------------------- run
class Processes:
    """What was started, each in a process group of its own, and how long it may take to stop."""

    def __init__(self) -> None:
        self.started: list[tuple[subprocess.Popen, float]] = []

    def start(self, command: list, stop_seconds: float = 0.0, **options) -> subprocess.Popen:
        process = subprocess.Popen([str(part) for part in command], start_new_session=True, **options)
        self.started.append((process, stop_seconds))
        return process

    def stop_all(self) -> None:
        for process, stop_seconds in reversed(self.started):
            if stop_seconds:
                self.signal(process, signal.SIGTERM)
                try:
                    process.wait(stop_seconds)
                except subprocess.TimeoutExpired:
                    print(f"# {process.args[0]} had not stopped after {stop_seconds:.0f} s", file=sys.stderr)
            self.signal(process, signal.SIGKILL)
            process.wait()

    @staticmethod
    def signal(process: subprocess.Popen, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def wait_for(what: str, process: subprocess.Popen, seconds: float, log: Path, ready):
    """Poll until `ready` answers something true; fail when the process ends or the deadline passes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := ready():
            return answer
        if process.poll() is not None:
            raise Failed(f"{what} ended with status {process.returncode} before it was ready", log)
        time.sleep(POLL_SECONDS)
    raise Failed(f"{what} was not ready after {seconds:.0f} s", log)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_langgraph(processes: Processes, langgraph: Path) -> str:
    # The server keeps its threads in `.langgraph_api` where it runs, and would go on with the runs it finds
    # there; so it runs in a fresh copy of the project.
    project = CACHE / "upstream" / "python"
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(UPSTREAM, project, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    log = LOGS / "langgraph.log"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with step("start langgraph"), log.open("w") as out:
        process = processes.start(
            [langgraph, "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", port,
             "--n-jobs-per-worker", 10, "--server-log-level", "WARNING"],
            cwd=project, env=os.environ | LANGGRAPH_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        wait_for("langgraph", process, LANGGRAPH_READY_SECONDS, log, lambda: answers(f"{url}/ok"))
    return url


def start_threadway(processes: Processes, binary: Path, upstream: str) -> str:
    log = LOGS / "threadway.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("THREADWAY_")}

    def bound_address() -> str | None:
        found = re.search(r"listening on .*?(http://[\d.]+:\d+)", log.read_text(errors="replace"))
        return found and found[1]

    with step("start threadway"), log.open("w") as out:
        process = processes.start(
            [binary, "serve", "--upstream", upstream, "--listen", "127.0.0.1:0"], stop_seconds=THREADWAY_STOP_SECONDS,
            env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        return wait_for("threadway", process, THREADWAY_READY_SECONDS, log, bound_address)


# ---------------------------------------------------------------- main
@contextlib.contextmanager
def step(name: str):
    started = time.monotonic()
    yield
    print(f"# {name}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)


def show(log: Path) -> None:
    if not log.exists():
        return
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    print(f"# ---- {log}, last {len(lines)} lines", *lines, sep="\n", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    upstream_only = arguments[:1] == ["--upstream-only"]
    command = arguments[upstream_only:]
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    if sys.version_info < (3, 11):
        print("the LangGraph server needs Python 3.11 or newer", file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    processes = Processes()
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second run waits for the first: they share .cache
        try:
            for log in LOGS.iterdir():
                log.unlink()
            langgraph = install_langgraph()
            install_client()
            binary = None if upstream_only else build_threadway()
            environment = dict(os.environ)
            environment["LANGGRAPH_URL"] = start_langgraph(processes, langgraph)
            if binary:
                environment["THREADWAY_URL"] = start_threadway(processes, binary, environment["LANGGRAPH_URL"])
            status = processes.start(command, env=environment).wait()
            if status != 0:
                for name in ("langgraph", "threadway"):
                    show(LOGS / f"{name}.log")
            return abs(status)
        except (Failed, OSError) as failure:
            print(f"# {failure}", file=sys.stderr)
            if log := getattr(failure, "log", None):
                show(log)
            return 1
        except KeyboardInterrupt:
            return 130
        finally:
            processes.stop_all()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
