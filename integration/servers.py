#!/usr/bin/env python3
"""Installs the dependencies of the integration tests, starts real LangGraph servers and a threadway in front of each, runs one
command, and stops the servers.

usage: servers.py [--name NAME] [OPTION...] COMMAND [ARG...]

There are two LangGraph servers, one in Python and one in JavaScript. COMMAND gets their URLs in LANGGRAPH_URL and
LANGGRAPH_JS_URL, and those of the threadways in front of them in THREADWAY_URL and THREADWAY_JS_URL.

Servers:
  --python, --js   only that server
  --python-js      only a Python server that runs the graphs of the JavaScript project in Node, as deployments do: in
                   LANGGRAPH_PYTHON_JS_URL, and a threadway in THREADWAY_PYTHON_JS_URL
  --aegra          only aegra with a PostgreSQL of its own, in LANGGRAPH_AEGRA_URL, and a threadway in THREADWAY_AEGRA_URL.
                   It needs Python 3.12 or newer, which AEGRA_PYTHON may name, and Debian's PostgreSQL
  --demo           only the scripted server of `threadway demo`, in DEMO_URL, and a Python with langgraph-sdk in LANGGRAPH_PYTHON
  --none           no server
  --auth           a Python server whose tenants have keys (upstream/python-auth), in LANGGRAPH_AUTH_URL, and no other unless its option is given;
                   with --aegra an aegra instead
  --upstream-only  no threadway
  --proxies        nginx and Caddy, in NGINX and CADDY, and a `threadway demo`, whose gateway is in DEMO_GATEWAY_URL
  --page           the page's build tools, and a `threadway demo`: its gateway is in DEMO_GATEWAY_URL, its LangGraph in DEMO_URL
  --spare          in LANGGRAPH_SPARE, LANGGRAPH_JS_SPARE or LANGGRAPH_AEGRA_SPARE how to start another LangGraph server, which COMMAND
                   may kill: the command without its port, its directory, its additional environment variables, its health route
Clients and tools:
  --copilot, --tanstack, --wire   CopilotKit's client, TanStack AI's, AG-UI's own adapter of LangGraph
  --examples       copies of `examples/`, whose folder is in EXAMPLES
  --live           the package threadway-client, built
  --firefox        Firefox, in FIREFOX
  --chromium       a browser, in CHROMIUM
  --acp            the Rust SDK's client, in ACP_RUST
  --acp-python     a Python with ACP's SDK, in ACP_PYTHON
  --validate       a Python with ag-ui-validate, in VALIDATE_PYTHON
  --metrics        a Python with prometheus-client, in METRICS_PYTHON, and Debian's Prometheus, in PROMETHEUS and PROMTOOL
  --helm           a Python with Helm, in HELM_PYTHON
  --book           a Python with mdBook, in BOOK_PYTHON
  --neovim         Neovim, in NEOVIM, and the folder of its plugins, in NEOVIM_PLUGINS, which may also name a folder that has them;
                   NEOVIM_MISSING has the reason if they cannot be had
  --reducer, --proto   the example programs of those suites
  --wasm               the translation as WebAssembly
  --faults         nginx, Redis and faketime, in NGINX, REDIS and FAKETIME

THREADWAY_BIN names a built binary. Without it `cargo build` makes one, and COMMAND gets its path in THREADWAY_BIN.
LANGGRAPH_PYTHON_LOCK and LANGGRAPH_JS_LOCK name the lock file, or the folder of one, of other versions of a server.
LANGGRAPH_WITHOUT names the graphs that they cannot load, separated by commas. `integration/matrix` sets all three.
Everything is installed and written in integration/.cache. Runs of different names (default: `run`) may be active at the same
time: each has its own projects and its own logs, in the directory in LOGS. Two runs of one name wait for each other.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from ports import free_port

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
LOGS = CACHE / "logs"
INSTALL_LOGS = LOGS / "install"
PYTHON = HERE / "upstream" / "python"
AEGRA = HERE / "upstream" / "aegra"
PYTHON_AUTH = HERE / "upstream" / "python-auth"
JS = HERE / "upstream" / "js"
CLIENT = HERE / "client"
COPILOT = HERE / "copilot"
TANSTACK = HERE / "tanstack"
WIRE = HERE / "wire"
EXAMPLES = HERE.parent / "examples"
WASM = HERE / "wasm"
WASI = "wasm32-wasip1"
ACP_RUST = HERE / "acp-rust"
VALIDATE = HERE / "validate"
METRICS = HERE / "metrics"
ACP_PYTHON = HERE / "acp-python"
BOOK = HERE / "book"
PAGE = HERE.parent / "page"
CLIENT_PACKAGE = HERE.parent / "packages" / "client"
HELM = HERE / "helm"
NEOVIM = HERE / "neovim"

LANGGRAPH_READY_SECONDS = 240.0  # 3 s on an idle machine; 74 s seen on a busy one
SCHEMAS_SECONDS = 120.0  # 5 s on an idle machine
THREADWAY_READY_SECONDS = 10.0
POSTGRES_READY_SECONDS = 60.0
POSTGRES_STOP_SECONDS = 10.0
POSTGRES_CONNECTIONS = 300  # each aegra has two pools
THREADWAY_STOP_SECONDS = 5.0
POLL_SECONDS = 0.05
CLONE_SECONDS = 120.0
LOG_LINES_SHOWN = 30

LANGGRAPH_ENVIRONMENT = {
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_API_KEY": "",
    "LANGCHAIN_API_KEY": "",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "NO_UPDATE_NOTIFIER": "1",
    "LOG_COLOR": "false",
    "NO_COLOR": "1",
    "PYTHONUNBUFFERED": "1",
}


# aegra's own variables; the database's are added when it runs.
AEGRA_ENVIRONMENT = LANGGRAPH_ENVIRONMENT | {
    "AEGRA_CONFIG": "aegra.json",
    "AUTH_TYPE": "noop",
    "LOG_LEVEL": "WARNING",
    "ENV_MODE": "PRODUCTION",
}
# What `langgraph dev` sets as well, but for its variant `local_dev`, which runs no JavaScript.
RUNNER_ENVIRONMENT = {
    "MIGRATIONS_PATH": "__inmem",
    "DATABASE_URI": ":memory:",
    "REDIS_URI": "fake",
    "LANGGRAPH_RUNTIME_EDITION": "inmem",
    "LANGGRAPH_ALLOW_BLOCKING": "true",
    "N_JOBS_PER_WORKER": "10",
    "LOG_LEVEL": "WARNING",
}
RUNNER_PORTS = ("LANGGRAPH_JS_REMOTE_PORT", "LANGGRAPH_JS_GRAPH_PORT", "LANGGRAPH_JS_GRAPH_HTTP_PORT")
# The first Python with which aegra-api 0.11 can be installed.
AEGRA_NEEDS = (3, 12)


class Failed(Exception):
    """A step failed; the log, if there is one, has the reason."""

    def __init__(self, message: str, log: Path | None = None):
        super().__init__(message)
        self.log = log


# ---------------------------------------------------------------- install
def install(name: str, lock: Path, directory: Path, commands: list[list[str]], before=None) -> None:
    """Runs the commands in an empty directory, unless its stamp says that this lock file was installed there."""
    stamp = directory / "stamp"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if before:
        before()
    log = INSTALL_LOGS / f"{name}.log"
    with step(f"install {name}"), log.open("w") as out:
        for command in commands:
            if subprocess.run(command, cwd=directory, stdout=out, stderr=subprocess.STDOUT).returncode != 0:
                raise Failed(f"`{' '.join(command[:4])} ...` failed", log)
    stamp.write_text(digest)


def install_venv(name: str, lock: Path, directory: Path, python: str = sys.executable) -> None:
    install(name, lock, directory, [
        [python, "-m", "venv", "."],
        # The lock file has all dependencies, so pip resolves none.
        ["bin/python", "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "-r", str(lock)],
    ])


def install_node_modules(name: str, package: Path, directory: Path, options: tuple[str, ...] = ()) -> None:
    def copy() -> None:
        for file in ("package.json", "package-lock.json"):
            shutil.copy(package / file, directory)

    install(name, package / "package-lock.json", directory,
            [["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", *options]], before=copy)


def install_client(package: Path, name: str | None = None) -> None:
    name = name or package.name
    install_node_modules(name, package, CACHE / name)
    link = package / "node_modules"
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(CACHE / name / "node_modules", package))


def build_client_package() -> None:
    """Builds it unless its sources were built: another suite may be serving the files."""
    # npm would install CopilotKit, an optional peer, with all of its packages.
    install_client(CLIENT_PACKAGE, "threadway-client")
    sources = sorted([*CLIENT_PACKAGE.glob("src/*"), CLIENT_PACKAGE / "tsconfig.json", CLIENT_PACKAGE / "package-lock.json"])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = CACHE / "threadway-client" / "built"
    if (CLIENT_PACKAGE / "dist" / "index.js").exists() and stamp.exists() and stamp.read_text() == digest:
        return
    with step("build threadway-client"):
        if subprocess.run(["npm", "run", "--silent", "build"], cwd=CLIENT_PACKAGE).returncode != 0:
            raise Failed("`npm run build` of threadway-client failed")
    stamp.write_text(digest)


def install_examples() -> Path:
    """Copies of the examples, with the packages that their READMEs install."""
    copies = CACHE / "examples"
    build_client_package()
    packages = CACHE / "packages"  # what the copies name `../../packages`
    if not packages.is_symlink():
        packages.symlink_to(HERE.parent / "packages")
    for example in sorted(path for path in EXAMPLES.iterdir() if (path / "README.md").exists()):
        copy = copies / example.name
        if (lock := example / "package-lock.json").exists():
            command = re.search(r"^ *(npm ci.*)$", (example / "README.md").read_text(), re.MULTILINE)
            if not command:
                raise Failed(f"the README of {example.name} does not install its packages")
            install(f"example-{example.name}", lock, copy, [["npm", "--ignore-scripts", "--no-audit", "--no-fund", *command[1].split()[1:]]],
                    before=lambda: shutil.copytree(example, copy, ignore=NOT_COPIED, dirs_exist_ok=True))
        shutil.copytree(example, copy, ignore=NOT_COPIED, dirs_exist_ok=True)
    acp = CACHE / "examples-acp"
    install_venv("examples-acp", HERE / "examples" / "requirements.lock.txt", acp)
    for name, venv in {"graph": install_langgraph(), "acp": acp}.items():
        link = copies / name / ".venv"
        if not link.is_symlink():
            link.symlink_to(venv)
    return copies


NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "dist")


def install_package(package: str, names: list[str], variable: str) -> str:
    """The program's path: that of the variable, else an installed one, else Debian's package."""
    if variable in os.environ:
        names = [os.environ[variable]]

    # Debian installs some servers in directories that are not in the PATH.
    def find() -> str | None:
        postgres = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", *postgres])
        return next(filter(None, (shutil.which(name, path=path) for name in names)), None)

    if found := find():
        return found
    missing = f"there is no {' or '.join(names)}"
    if variable in os.environ or os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Failed(f"{missing}: install it, or name one in {variable} (with apt-get, and as root, this does it itself)")
    log = INSTALL_LOGS / f"{package}.log"
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # a package's service is not started
    with step(f"install {package}"), log.open("w") as out:
        for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", package]):
            if subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode != 0:
                raise Failed(f"{missing}, and `{' '.join(command[:2])}` failed", log)
    if found := find():
        return found
    raise Failed(f"{missing}, and Debian's package has none either", log)


def install_chromium() -> str:
    return install_package("chromium", ["chromium", "chromium-browser", "google-chrome"], "CHROMIUM")


def install_firefox() -> str:
    return install_package("firefox-esr", ["firefox-esr", "firefox"], "FIREFOX")


def install_proxies() -> dict[str, str]:
    return {
        "NGINX": install_package("nginx-light", ["nginx"], "NGINX"),
        "CADDY": install_package("caddy", ["caddy"], "CADDY"),
    }


def install_python(package: Path) -> Path:
    venv = CACHE / package.name
    install_venv(package.name, package / "requirements.lock.txt", venv)
    return venv / "bin" / "python"


# By commit, so that each machine has the same ones.
NEOVIM_PLUGINS = {
    "codecompanion.nvim": ("https://github.com/olimorris/codecompanion.nvim", "f1afd02537c68b3dd6e0d41d4adda5ef538e0473"),
    "plenary.nvim": ("https://github.com/nvim-lua/plenary.nvim", "b9fd5226c2f76c951fc8ed5923d85e4de065e509"),
}


def install_neovim() -> dict[str, str]:
    """Neovim and its plugins. They are not in a package registry, so a machine may not reach them; the suite is then skipped."""
    try:
        venv = install_python(NEOVIM).parent
        return {"NEOVIM": str(venv / "nvim"), "NEOVIM_PLUGINS": os.environ.get("NEOVIM_PLUGINS") or str(install_neovim_plugins())}
    except Failed as failure:
        missing = f"{failure}: name a folder with {' and '.join(NEOVIM_PLUGINS)} in NEOVIM_PLUGINS"
        print(f"# neovim is skipped: {missing}", file=sys.stderr)
        return {"NEOVIM_MISSING": missing}


def install_neovim_plugins() -> Path:
    plugins = CACHE / "neovim-plugins"
    log = INSTALL_LOGS / "neovim-plugins.log"
    for name, (url, commit) in NEOVIM_PLUGINS.items():
        stamp = plugins / f"{name}.commit"
        if stamp.exists() and stamp.read_text() == commit:
            continue
        shutil.rmtree(plugins / name, ignore_errors=True)
        (plugins / name).mkdir(parents=True)
        git = ["git", "-C", str(plugins / name)]
        with step(f"fetch {name}"), log.open("a") as out:
            for command in ([*git, "init", "--quiet"], [*git, "fetch", "--quiet", "--depth", "1", url, commit], [*git, "checkout", "--quiet", "FETCH_HEAD"]):
                try:
                    environment = os.environ | {"GIT_TERMINAL_PROMPT": "0"}
                    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=CLONE_SECONDS)
                except (OSError, subprocess.TimeoutExpired) as error:
                    raise Failed(f"{url} cannot be fetched ({type(error).__name__})", log) from error
                if done.returncode != 0:
                    raise Failed(f"{url} cannot be fetched", log)
        stamp.write_text(commit)
    return plugins


def python_for_aegra() -> str:
    """A Python that is new enough: that of AEGRA_PYTHON, this one, or one of the PATH or of pyenv."""
    if named := os.environ.get("AEGRA_PYTHON"):
        return named
    if sys.version_info >= AEGRA_NEEDS:
        return sys.executable
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python3.{minor}") for minor in (14, 13, 12)] + sorted(map(str, versions.glob("3.1[2-9]*/bin/python3")))
    # pyenv's shims are on the PATH for versions that it does not start.
    works = lambda python: subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0
    if python := next((python for python in found if python and works(python)), None):
        return python
    raise Failed("aegra needs Python 3.12 or newer, and there is none: install one, or name one in AEGRA_PYTHON")


def install_aegra() -> Path:
    venv = CACHE / "aegra"
    install_venv("aegra", AEGRA / "requirements.lock.txt", venv, python_for_aegra())
    return venv


def install_postgres() -> Path:
    """The directory of PostgreSQL's programs."""
    return Path(install_package("postgresql", ["initdb"], "INITDB")).resolve().parent


def build_threadway() -> Path:
    if "THREADWAY_BIN" in os.environ:
        return Path(os.environ["THREADWAY_BIN"]).resolve()
    # Together with a test, so that the dependencies have the features with which `cargo test` has built them.
    command = ["cargo", "build", "--locked", "--bin", "threadway", "--test", "memory"]
    with step("build threadway"):
        if subprocess.run(command, cwd=HERE.parent).returncode != 0:
            raise Failed("`cargo build` failed")
    return built("threadway")


def built(name: str) -> Path:
    return HERE.parent / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / name


def build_example(name: str) -> str:
    variable = variable_of(name)
    if variable in os.environ:
        return str(Path(os.environ[variable]).resolve())
    with step(f"build {name}"):
        if subprocess.run(["cargo", "build", "--locked", "--example", name], cwd=HERE.parent).returncode != 0:
            raise Failed(f"`cargo build` of the example {name} failed")
    return str(built(f"examples/{name}"))


def build_wasm() -> str:
    """The translation's example for WASI, and the library for a host without any system interface."""
    # A directory of its own: cargo lets one build at a time into a directory, and the lints may be building.
    target = CACHE / "wasm"
    package = ["--locked", "--manifest-path", WASM / "Cargo.toml", "--target-dir", target]
    with step("build the translation for WebAssembly"):
        for command in (
            ["rustup", "target", "add", "wasm32-unknown-unknown", WASI],
            ["cargo", "check", *package, "--target", "wasm32-unknown-unknown"],
            ["cargo", "build", *package, "--target", WASI],
        ):
            if subprocess.run(command, cwd=HERE.parent).returncode != 0:
                raise Failed(f"`{' '.join(map(str, command))}` failed")
    return str(target / WASI / "debug" / "translate.wasm")


def variable_of(example: str) -> str:
    return example.replace("-", "_").upper()


def build_acp_rust() -> Path:
    target = CACHE / "acp-rust"
    with step("build acp-rust"):
        command = ["cargo", "build", "--locked", "--manifest-path", ACP_RUST / "Cargo.toml", "--target-dir", target]
        if subprocess.run(command).returncode != 0:
            raise Failed("`cargo build` of the Rust SDK's client failed")
    return target / "debug" / "threadway-integration-acp"


def prepare(options: set[str]) -> dict[str, str]:
    """Installs and builds the requirements of these options; returns the variables that name them."""
    found = {}
    with locked(CACHE / "install.lock"):
        INSTALL_LOGS.mkdir(parents=True, exist_ok=True)
        install_client(CLIENT)
        if "--validate" in options:
            found["VALIDATE_PYTHON"] = str(install_python(VALIDATE))
        if "--book" in options:
            found["BOOK_PYTHON"] = str(install_python(BOOK))
        if "--acp-python" in options:
            found["ACP_PYTHON"] = str(install_python(ACP_PYTHON))
        if "--metrics" in options:
            found["METRICS_PYTHON"] = str(install_python(METRICS))
            found["PROMETHEUS"] = install_package("prometheus", ["prometheus"], "PROMETHEUS")
            found["PROMTOOL"] = install_package("prometheus", ["promtool"], "PROMTOOL")
        if "--helm" in options:
            found["HELM_PYTHON"] = str(install_python(HELM))
        if "--neovim" in options:
            found |= install_neovim()
        if "--copilot" in options:
            install_client(COPILOT)
        if "--tanstack" in options:
            install_client(TANSTACK)
        if "--wire" in options:
            install_client(WIRE)
        if "--examples" in options:
            found["EXAMPLES"] = str(install_examples())
        if "--page" in options:
            install_client(PAGE)
        if "--live" in options:
            build_client_package()
        if "--firefox" in options:
            found["FIREFOX"] = install_firefox()
        if "--chromium" in options:
            found["CHROMIUM"] = install_chromium()
        if "--proxies" in options:
            found |= install_proxies()
        if "--faults" in options:
            found |= {"NGINX": install_package("nginx-light", ["nginx"], "NGINX"), "REDIS": install_package("redis-server", ["redis-server"], "REDIS"),
                      "FAKETIME": install_package("faketime", ["faketime"], "FAKETIME")}
        if "--acp" in options:
            found["ACP_RUST"] = os.environ.get("ACP_RUST") or str(build_acp_rust())
        for option, example in {"--reducer": "reducer-streams", "--proto": "proto-frames"}.items():
            if option in options:
                found[variable_of(example)] = build_example(example)
        if "--wasm" in options:
            found["TRANSLATE_WASM"] = build_wasm()
        if "--upstream-only" not in options:
            found["THREADWAY_BIN"] = str(build_threadway())
        if "--demo" in options or auth_server(options) == "python" or "python" in upstreams(options):
            found["LANGGRAPH_PYTHON"] = str(install_langgraph() / "bin" / "python")
        if "js" in upstreams(options):
            install_langgraph_js()
        if "python-js" in upstreams(options):
            install_runner()
        if "aegra" in upstreams(options):
            install_aegra()
            install_postgres()
    return found


def upstreams(options: set[str]) -> list[str]:
    """The names of the LangGraph servers that the options ask for."""
    chosen = {"--python", "--js", "--python-js", "--aegra", "--demo", "--none", "--auth", "--proxies"} & options or {"--python", "--js"}
    return [name for name in UPSTREAMS if f"--{name}" in chosen]


def auth_server(options: set[str]) -> str | None:
    """The name of the server whose tenants have keys."""
    if "--auth" not in options:
        return None
    return "aegra" if "--aegra" in options else "python"


@contextlib.contextmanager
def locked(path: Path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---------------------------------------------------------------- run
class Processes:
    """The started processes, each in a process group of its own, how long each may take to stop, and their directories."""

    def __init__(self) -> None:
        self.started: list[tuple[subprocess.Popen, float]] = []
        self.directories = contextlib.ExitStack()

    def directory(self, prefix: str) -> Path:
        """A new directory, which is removed after the processes have stopped."""
        return Path(self.directories.enter_context(tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)))

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
        self.directories.close()

    @staticmethod
    def signal(process: subprocess.Popen, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def wait_for(what: str, process: subprocess.Popen, seconds: float, log: Path, ready):
    """Polls until `ready` returns a true value; fails when the process ends or the deadline passes."""
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


def fresh_project(source: Path, run: str, name: str) -> Path:
    """A copy of the project: both servers store their threads in its `.langgraph_api`, and would continue the runs in it."""
    project = CACHE / "upstream" / run / name
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(source, project, ignore=shutil.ignore_patterns(".*", "__pycache__", "node_modules"))
    if without := os.environ.get("LANGGRAPH_WITHOUT"):
        settings = json.loads((project / "langgraph.json").read_text())
        settings["graphs"] = {graph: at for graph, at in settings["graphs"].items() if graph not in without.split(",")}
        (project / "langgraph.json").write_text(json.dumps(settings))
    return project


@dataclasses.dataclass(frozen=True)
class Server:
    """How a LangGraph server is started: its command without the port, its directory and its own variables."""

    command: list
    project: Path
    environment: dict[str, str] = dataclasses.field(default_factory=lambda: LANGGRAPH_ENVIRONMENT)
    health: str = "/ok"
    is_cold: bool = False  # it imports each graph at its first use, for which a gateway does not wait on a busy machine
    headers: dict[str, str] = dataclasses.field(default_factory=dict)  # a caller's, if it has callers

    def spare(self) -> str:
        """What another process needs to start it."""
        command = [str(part) for part in self.command]
        return json.dumps({"command": command, "cwd": str(self.project), "env": self.environment, "health": self.health})


def start_langgraph(processes: Processes, logs: Path, name: str, server: Server) -> str:
    log = logs / f"langgraph-{name}.log"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with step(f"start langgraph-{name}"), log.open("w") as out:
        process = processes.start([*server.command, "--port", port], cwd=server.project, env=os.environ | server.environment,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        wait_for(f"langgraph-{name}", process, LANGGRAPH_READY_SECONDS, log, lambda: answers(url + server.health))
    if server.is_cold:
        with step(f"let langgraph-{name} import its graphs"):
            for assistant in ask(f"{url}/assistants/search", server.headers, {"limit": 100}):
                ask(f"{url}/assistants/{assistant['assistant_id']}/schemas", server.headers)
    return url


def ask(url: str, headers: dict[str, str], body: dict | None = None):
    """The JSON of the answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"} | headers)
    with urllib.request.urlopen(request, timeout=LANGGRAPH_READY_SECONDS) as response:
        return json.load(response)


class Postgres:
    """A PostgreSQL with an empty directory of its own, and its port."""

    def __init__(self, processes: Processes, logs: Path, options: tuple[str, ...] = ("fsync=off",)) -> None:
        self.programs = install_postgres()
        self.processes, self.log, self.options = processes, logs / "postgres.log", options
        self.port = free_port()
        self.directory = processes.directory("threadway-postgres-")
        # PostgreSQL refuses to run as root.
        self.user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        if self.user:
            shutil.chown(self.directory, "postgres", "postgres")
        with step("create the database's directory"):
            self.run("initdb", "--pgdata", self.directory / "data", "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--no-sync")
        self.start()

    def start(self) -> None:
        options = ["listen_addresses=127.0.0.1", f"port={self.port}", f"unix_socket_directories={self.directory}",
                   f"max_connections={POSTGRES_CONNECTIONS}", *self.options]
        command = [self.programs / "postgres", "-D", self.directory / "data", *(part for option in options for part in ("-c", option))]
        with step("start postgres"), self.log.open("a") as out:
            self.process = self.processes.start(command, stop_seconds=POSTGRES_STOP_SECONDS, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **self.user)
            is_ready = lambda: self.run("pg_isready", *self.address, check=False).returncode == 0
            wait_for("postgres", self.process, POSTGRES_READY_SECONDS, self.log, is_ready)

    @property
    def address(self) -> list:
        return ["--host", "127.0.0.1", "--port", self.port]

    def run(self, program: str, *arguments, check: bool = True) -> subprocess.CompletedProcess:
        done = subprocess.run([str(part) for part in (self.programs / program, *arguments)], cwd=self.directory, capture_output=True, text=True, **self.user)
        if check and done.returncode != 0:
            raise Failed(f"{program} failed: {done.stderr.strip()}", self.log)
        return done

    def create(self, name: str) -> dict[str, str]:
        """A new database; returns the variables with which aegra finds it."""
        self.run("createdb", *self.address, "--username", "postgres", name)
        return {"POSTGRES_HOST": "127.0.0.1", "POSTGRES_PORT": str(self.port), "POSTGRES_DB": name,
                "POSTGRES_USER": "postgres", "POSTGRES_PASSWORD": "unused"}


LOCAL = ["--no-browser", "--host", "127.0.0.1"]


def install_langgraph() -> Path:
    other = os.environ.get("LANGGRAPH_PYTHON_LOCK")
    venv = CACHE / "versions" / Path(other).stem if other else CACHE / "python"
    install_venv(f"langgraph-{venv.name}", Path(other or PYTHON / "requirements.lock.txt").resolve(), venv)
    return venv


def install_langgraph_js() -> Path:
    other = os.environ.get("LANGGRAPH_JS_LOCK")
    directory = CACHE / "versions" / Path(other).name if other else CACHE / "js"
    # The server's packages require an SDK version that the graph's package excludes; they work together nevertheless.
    install_node_modules(f"langgraph-{directory.name}", Path(other or JS), directory, ("--legacy-peer-deps",))
    return directory


def install_runner() -> tuple[Path, Path]:
    """The Python server with the packages of its runner for JavaScript, and the folder of the graphs' packages."""
    venv, graphs = install_langgraph(), install_langgraph_js()
    directory = CACHE / "python-js"
    runner = next(venv.glob("lib/python*/site-packages/langgraph_api/js"))

    def copy() -> None:
        for file in ("package.json", "yarn.lock"):
            shutil.copy(runner / file, directory)

    # npm takes the versions from the lock file of yarn that the server brings.
    install("langgraph-python-js", runner / "yarn.lock", directory,
            [["npm", "install", "--omit=dev", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund"]], before=copy)
    link = venv / "node_modules"  # a parent of the runner's own files, which Node looks through
    if not link.is_symlink():
        link.symlink_to(directory / "node_modules")
    write_schemas(runner, graphs)
    return venv, graphs


def write_schemas(runner: Path, packages: Path) -> None:
    """Writes the schemas of the graphs, and which have none, as the build of an image does. Without that the runner looks for a
    missing schema in the source again at each request, for seconds."""
    written = runner / "client.schemas.json"
    if written.exists():
        return
    project = js_project(packages, "install", "python-js")
    log = INSTALL_LOGS / "langgraph-python-js-schemas.log"
    with step("write schemas of JavaScript graphs"), log.open("w") as out:
        process = subprocess.Popen(["tsx", runner / "build.mts"], cwd=project, env=os.environ | runner_environment(project, packages),
                                   start_new_session=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            wait_for("build.mts", process, SCHEMAS_SECONDS, log, lambda: written.exists() and written.read_text().endswith("}"))
        finally:
            # If there is no schema, it waits for a timer of two minutes before it ends.
            Processes.signal(process, signal.SIGKILL)
            process.wait()


def js_project(packages: Path, run: str, name: str) -> Path:
    project = fresh_project(JS, run, name)
    (project / "node_modules").symlink_to(packages / "node_modules")
    return project


def runner_environment(project: Path, packages: Path) -> dict[str, str]:
    return {
        "LANGSERVE_GRAPHS": json.dumps(json.loads((project / "langgraph.json").read_text())["graphs"]),
        "PATH": os.pathsep.join([str(packages / "node_modules" / ".bin"), os.environ.get("PATH", os.defpath)]),  # of tsx
    }


def prepare_python(run: str, name: str) -> Server:
    venv = install_langgraph()
    options = ["--no-reload", "--n-jobs-per-worker", 10, "--server-log-level", "WARNING"]
    return Server([venv / "bin" / "langgraph", "dev", *options, *LOCAL], fresh_project(PYTHON, run, name))


def with_keys(server: Server, config: str) -> Server:
    """The same server for callers with a key. `config` is the file that names its graphs."""
    shutil.copy(PYTHON_AUTH / "auth.py", server.project)
    settings = json.loads((server.project / config).read_text())
    settings["auth"] = {"path": "./auth.py:auth"}
    (server.project / config).write_text(json.dumps(settings))
    return dataclasses.replace(server, headers=A_CALLER)


def prepare_aegra(run: str, name: str, database: dict[str, str]) -> Server:
    """aegra with the graphs of the Python server."""
    project = fresh_project(PYTHON, run, name)
    graphs = json.loads((project / "langgraph.json").read_text())["graphs"]
    (project / "aegra.json").write_text(json.dumps({"graphs": graphs}))
    command = [install_aegra() / "bin" / "python", "-m", "uvicorn", "aegra_api.main:app", "--host", "127.0.0.1"]
    return Server(command, project, AEGRA_ENVIRONMENT | database, "/health", is_cold=True)


def prepare_python_js(run: str, name: str) -> Server:
    """The Python server with the graphs of the JavaScript one. `langgraph dev` refuses them, and images of deployments do not."""
    venv, packages = install_runner()
    project = js_project(packages, run, name)
    ports = {variable: str(free_port()) for variable in RUNNER_PORTS}
    environment = LANGGRAPH_ENVIRONMENT | RUNNER_ENVIRONMENT | runner_environment(project, packages) | ports
    return Server([venv / "bin" / "python", "-m", "uvicorn", "langgraph_api.server:app", "--host", "127.0.0.1"], project, environment)


def prepare_js(run: str, name: str) -> Server:
    directory = install_langgraph_js()
    project = js_project(directory, run, name)
    return Server([directory / "node_modules" / ".bin" / "langgraphjs", "dev", *LOCAL], project)


A_CALLER = {"x-api-key": "key-of-alice"}  # of upstream/python-auth

# The files that name the graphs of the servers that can have keys.
CONFIGS = {"python": "langgraph.json", "aegra": "aegra.json"}

# The variables of each server in the command's environment.
UPSTREAMS = {
    "python": ("LANGGRAPH", "THREADWAY"),
    "js": ("LANGGRAPH_JS", "THREADWAY_JS"),
    "python-js": ("LANGGRAPH_PYTHON_JS", "THREADWAY_PYTHON_JS"),
    "aegra": ("LANGGRAPH_AEGRA", "THREADWAY_AEGRA"),
}


def start_threadway(processes: Processes, logs: Path, name: str, binary: str, upstream: str) -> str:
    command = [binary, "serve", "--upstream", upstream, "--listen", "127.0.0.1:0"]
    return start_binary(processes, logs, f"threadway-{name}", command, GATEWAY_TOLD)


GATEWAY_TOLD = r"listening on .*?(http://[\d.]+:\d+)"
LANGGRAPH_TOLD = r"LangGraph's own API is at (http://[\d.]+:\d+)"


def start_demo(processes: Processes, logs: Path, binary: str, told: str) -> str:
    """The URL of its gateway, or of its scripted LangGraph server."""
    return start_binary(processes, logs, "threadway-demo", [binary, "demo", "--listen", "127.0.0.1:0"], told)


def start_both(processes: Processes, logs: Path, binary: str) -> tuple[str, str]:
    """The URLs of one demo's gateway and of its LangGraph server."""
    gateway = start_demo(processes, logs, binary, GATEWAY_TOLD)
    said = lambda: re.search(LANGGRAPH_TOLD, (logs / "threadway-demo.log").read_text(errors="replace"))
    process = processes.started[-1][0]
    return gateway, wait_for("threadway-demo", process, THREADWAY_READY_SECONDS, logs / "threadway-demo.log", said)[1]


def start_binary(processes: Processes, logs: Path, name: str, command: list, told: str) -> str:
    log = logs / f"{name}.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("THREADWAY_")}

    def bound_address() -> str | None:
        found = re.search(told, log.read_text(errors="replace"))
        return found and found[1]

    with step(f"start {name}"), log.open("w") as out:
        process = processes.start(command, stop_seconds=THREADWAY_STOP_SECONDS, env=environment,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        return wait_for(name, process, THREADWAY_READY_SECONDS, log, bound_address)


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


OPTIONS = {"--python", "--js", "--python-js", "--aegra", "--demo", "--none", "--upstream-only", "--validate", "--metrics",
           "--book", "--neovim", "--copilot", "--tanstack", "--wire", "--live", "--chromium", "--firefox", "--examples", "--page", "--helm",
           "--acp", "--acp-python", "--reducer", "--proto", "--wasm", "--spare", "--auth", "--proxies", "--faults"}


def start_servers(processes: Processes, run: str, logs: Path, options: set[str], environment: dict[str, str]) -> None:
    """Starts the servers of the options, and adds their URLs to the environment."""
    binary = environment.get("THREADWAY_BIN") if "--upstream-only" not in options else None
    if "--demo" in options:
        environment["DEMO_URL"] = start_demo(processes, logs, binary, LANGGRAPH_TOLD)
    if {"--proxies", "--proto"} & options:
        environment["DEMO_GATEWAY_URL"] = start_demo(processes, logs, binary, GATEWAY_TOLD)
    if "--page" in options:
        environment["DEMO_GATEWAY_URL"], environment["DEMO_URL"] = start_both(processes, logs, binary)
    postgres = Postgres(processes, logs) if "aegra" in upstreams(options) else None
    prepare_server = {
        "python": lambda name: prepare_python(run, name),
        "js": lambda name: prepare_js(run, name),
        "python-js": lambda name: prepare_python_js(run, name),
        "aegra": lambda name: prepare_aegra(run, name, postgres.create(name)),
    }
    if kind := auth_server(options):
        name = f"{kind}-auth"
        server = with_keys(prepare_server[kind](name), CONFIGS[kind])
        environment["LANGGRAPH_AUTH_URL"] = start_langgraph(processes, logs, name, server)
    for name in upstreams(options):
        langgraph, threadway = UPSTREAMS[name]
        url = environment[f"{langgraph}_URL"] = start_langgraph(processes, logs, name, prepare_server[name](name))
        if binary:
            environment[f"{threadway}_URL"] = start_threadway(processes, logs, name, binary, url)
        if "--spare" in options:
            environment[f"{langgraph}_SPARE"] = prepare_server[name](f"{name}-spare").spare()


def main(arguments: list[str]) -> int:
    run, options = "run", set()
    while arguments and arguments[0].startswith("--"):
        option = arguments.pop(0)
        if option == "--name" and arguments:
            run = arguments.pop(0)
        elif option in OPTIONS:
            options.add(option)
        else:
            print(f"{option}: there is no such option\n\n{__doc__}", file=sys.stderr)
            return 2
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    if sys.version_info < (3, 11):
        print("the LangGraph server needs Python 3.11 or newer", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    processes = Processes()
    logs = LOGS / run
    with locked(CACHE / "locks" / run):
        try:
            shutil.rmtree(logs, ignore_errors=True)
            logs.mkdir(parents=True)
            environment = os.environ | prepare(options) | {"LOGS": str(logs)}
            start_servers(processes, run, logs, options, environment)
            status = processes.start(arguments, env=environment).wait()
            if status != 0:
                for log in sorted(logs.glob("*-*.log")):
                    show(log)
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
