"""The parts of a cluster that `integration/cluster` starts, kills and restarts: PostgreSQL, Redis, aegras that serve and aegras
that work, threadways, and an nginx before each of the two.

Every aegra process serves HTTP. WORKER_COUNT=0 makes one that takes no runs. A worker is a process with WORKER_COUNT above 0
whose address is not given to anybody.
"""

import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import servers
from ports import free_port

READY_SECONDS = 120.0  # of an aegra on two busy cores: it imports for 10 s
ADDRESS = "127.0.0.1"
# The graphs that the clients of a cluster run. Fewer graphs make an aegra start sooner.
GRAPHS = ["agent", "counter", "hitl", "interrupt_node", "slow", "text"]
# A worker has this many loops, and each loop this many runs at a time.
WORKER_LOOPS, JOBS_OF_A_LOOP = 2, 10
# By default an aegra keeps up to 50 connections to PostgreSQL.
POOLS = {"SQLALCHEMY_POOL_SIZE": "5", "SQLALCHEMY_MAX_OVERFLOW": "15", "LANGGRAPH_MIN_POOL_SIZE": "2", "LANGGRAPH_MAX_POOL_SIZE": "20"}


class Part:
    """One process of the cluster, at one address for as long as the cluster runs."""

    def __init__(self, cluster: "Cluster", name: str, port: int | None = None) -> None:
        self.cluster, self.name = cluster, name
        self.port = port or free_port()
        self.log = cluster.logs / f"{name}.log"
        self.process: subprocess.Popen | None = None
        self.options: dict = {}

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}"

    def command(self) -> list:
        raise NotImplementedError

    def is_ready(self) -> bool:
        return servers.answers(f"{self.url}/healthz")

    def start(self) -> None:
        with self.log.open("a") as out:
            self.process = self.cluster.processes.start(self.command(), stop_seconds=servers.THREADWAY_STOP_SECONDS,
                                                        stdin=subprocess.DEVNULL, stdout=out, stderr=out, **self.options)

    def wait(self) -> None:
        """Waits until it is ready. A process that ends at once is started again: its parts may still be ending."""
        deadline = time.monotonic() + READY_SECONDS
        while not self.is_ready():
            if time.monotonic() > deadline:
                raise servers.Failed(f"{self.name} was not ready after {READY_SECONDS:.0f} s", self.log)
            if self.process.poll() is not None:
                self.cluster.processes.started = [one for one in self.cluster.processes.started if one[0] is not self.process]
                self.start()
            time.sleep(0.2)

    def kill(self) -> None:
        """SIGKILL to the process and all of its descendants, and a wait until the process is gone."""
        for pid in descendants(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.cluster.processes.started = [one for one in self.cluster.processes.started if one[0] is not self.process]


def descendants(pid: int) -> list[int]:
    """A process and the processes that it has started: PostgreSQL's are in process groups of their own."""
    found = [pid]
    for parent in found:
        try:
            threads = list(Path(f"/proc/{parent}/task").iterdir())
        except OSError:
            continue
        for thread in threads:
            try:
                found += map(int, (thread / "children").read_text().split())
            except OSError:
                pass
    return found


class Postgres(Part):
    def __init__(self, cluster: "Cluster") -> None:
        super().__init__(cluster, "postgres")
        # The statistics of every statement, for the measurement.
        settings = ("fsync=off", "shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all")
        self.server = servers.Postgres(cluster.processes, cluster.logs, settings)
        self.port, self.process, self.log = self.server.port, self.server.process, self.server.log

    def start(self) -> None:
        options = ["listen_addresses=127.0.0.1", f"port={self.port}", f"unix_socket_directories={self.server.directory}",
                   f"max_connections={servers.POSTGRES_CONNECTIONS}", *self.server.options]
        command = [self.server.programs / "postgres", "-D", self.server.directory / "data",
                   *(part for option in options for part in ("-c", option))]
        with self.log.open("a") as out:
            self.process = self.cluster.processes.start(command, stop_seconds=servers.POSTGRES_STOP_SECONDS, cwd=self.server.directory,
                                                        stdin=subprocess.DEVNULL, stdout=out, stderr=out, **self.server.user)

    def is_ready(self) -> bool:
        return self.server.run("pg_isready", *self.server.address, check=False).returncode == 0

    def query(self, sql: str) -> list[list[str]]:
        done = self.server.run("psql", *self.server.address, "-U", "postgres", "-d", "aegra", "-AtF", "\t", "-c", sql)
        return [line.split("\t") for line in done.stdout.splitlines()]


class Redis(Part):
    """It writes each change to a file. With `forgets` it has lost the queue and the streams when it dies."""

    def command(self) -> list:
        keeps = "no" if self.cluster.redis_forgets else "yes"
        options = ["--port", self.port, "--bind", ADDRESS, "--save", "", "--appendonly", keeps, "--dir", self.cluster.directory]
        return [self.cluster.programs["REDIS_SERVER"], *options]

    def is_ready(self) -> bool:
        return self.ask("PING").startswith("+PONG")

    def ask(self, command: str) -> str:
        import socket
        try:
            with socket.create_connection((ADDRESS, self.port), timeout=2) as connection:
                connection.sendall(f"{command}\r\n".encode())
                return connection.recv(65536).decode(errors="replace")
        except OSError:
            return ""


class Aegra(Part):
    def __init__(self, cluster: "Cluster", name: str, loops: int) -> None:
        super().__init__(cluster, name)
        self.loops = loops
        server = cluster.aegra
        environment = server.environment | {
            "REDIS_BROKER_ENABLED": "true", "REDIS_URL": f"redis://{ADDRESS}:{cluster.redis.port}/0",
            "WORKER_COUNT": str(loops), "N_JOBS_PER_WORKER": str(cluster.jobs), "LOG_LEVEL": "INFO",
            "RUN_MIGRATIONS_ON_STARTUP": "false" if cluster.aegras else "true", **POOLS, **cluster.timing,
        }
        self.options = {"cwd": server.project, "env": os.environ | environment}

    def command(self) -> list:
        return [*self.cluster.aegra.command, "--port", self.port, "--no-access-log"]

    def is_ready(self) -> bool:
        return servers.answers(f"{self.url}/health")


class Threadway(Part):
    def command(self) -> list:
        return [self.cluster.programs["THREADWAY_BIN"], "serve", "--upstream", self.cluster.inner.url, "--listen", f"{ADDRESS}:{self.port}",
                "--log", "info"]

    def start(self) -> None:
        bare = {name: value for name, value in os.environ.items() if not name.startswith("THREADWAY_")}
        self.options = {"env": bare}
        super().start()


class Nginx(Part):
    """As docs/operate.md has it, without TLS, before several servers."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        super().__init__(cluster, name)
        self.behind: list[Part] = []

    def command(self) -> list:
        directory = self.cluster.directory / self.name
        directory.mkdir(exist_ok=True)
        paths = " ".join(f"{name}_temp_path {directory / name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;" if os.geteuid() == 0 else ""
        # A server that refused a connection is not asked for a second.
        servers_ = " ".join(f"server {ADDRESS}:{part.port} fail_timeout=1s;" for part in self.behind)
        (directory / "nginx.conf").write_text(f"""{user} daemon off; worker_processes 1; worker_rlimit_nofile 20000;
pid {directory}/pid; error_log stderr warn; events {{ worker_connections 10000; }}
http {{ access_log off; {paths}
upstream behind {{ {servers_} }}
server {{
    listen {ADDRESS}:{self.port} backlog=4096;
    location = /healthz {{ return 200; }}
    location / {{
        proxy_pass http://behind;
        proxy_http_version 1.1;
        proxy_set_header Connection close;
        proxy_set_header Host $http_host;
        proxy_buffering off;
        gzip off;
        proxy_read_timeout 60s;
        send_timeout 120s;
        client_max_body_size 10m;
    }}
}} }}
""")
        return [self.cluster.programs["NGINX"], "-p", directory, "-e", "stderr", "-c", directory / "nginx.conf"]


class Cluster:
    """All parts. `edge` is the nginx before the threadways, `inner` the one before the aegras that serve."""

    def __init__(self, processes: servers.Processes, run: str, logs: Path, programs: dict[str, str], *,
                 gateways: int = 2, serving: int = 2, workers: int = 2, timing: dict[str, str] | None = None,
                 redis_forgets: bool = False, jobs: int = JOBS_OF_A_LOOP) -> None:
        self.redis_forgets, self.jobs = redis_forgets, jobs
        self.processes, self.logs, self.programs, self.timing = processes, logs, programs, timing or {}
        self.directory = processes.directory("threadway-cluster-")
        self.postgres = Postgres(self)
        self.redis = Redis(self, "redis")
        self.aegra = servers.prepare_aegra(run, "aegra", self.postgres.server.create("aegra"))
        settings = self.aegra.project / "aegra.json"
        graphs = json.loads(settings.read_text())["graphs"]
        settings.write_text(json.dumps({"graphs": {name: graphs[name] for name in GRAPHS}}))
        self.aegras: list[Aegra] = []
        for n in range(serving):
            self.aegras.append(Aegra(self, f"api-{n + 1}", 0))
        self.serving = list(self.aegras)
        for n in range(workers):
            self.aegras.append(Aegra(self, f"worker-{n + 1}", WORKER_LOOPS))
        self.workers = self.aegras[serving:]
        self.inner, self.edge = Nginx(self, "nginx-inner"), Nginx(self, "nginx-edge")
        self.threadways = [Threadway(self, f"threadway-{n + 1}") for n in range(gateways)]
        self.inner.behind, self.edge.behind = self.serving, self.threadways

    @property
    def parts(self) -> list[Part]:
        return [self.postgres, self.redis, *self.aegras, self.inner, *self.threadways, self.edge]

    def start(self) -> None:
        with servers.step("start the cluster"):
            self.redis.start()
            self.redis.wait()
            # The first one makes the database's tables.
            self.aegras[0].start()
            self.aegras[0].wait()
            for part in [*self.aegras[1:], self.inner]:
                part.start()
            for part in [*self.aegras[1:], self.inner]:
                part.wait()
            for part in [*self.threadways, self.edge]:
                part.start()
            for part in [*self.threadways, self.edge]:
                part.wait()

    def environment(self) -> dict[str, str]:
        """What the clients need to know."""
        return {
            "LOGS": str(self.logs), "LANGGRAPH_URL": self.inner.url, "THREADWAY_URL": self.edge.url,
            "THREADWAYS": ",".join(part.url for part in self.threadways),
        }


class Restarts:
    """Kills parts, and starts each again after a pause, beside the kills of others."""

    def __init__(self, tell) -> None:
        self.tell = tell
        self.failures: list[str] = []
        self.threads: dict[str, threading.Thread] = {}

    def is_down(self, part: Part) -> bool:
        """Whether the part, or another of its kind, is away: one of two must be there."""
        kind = part.name.split("-")[0]
        return any(thread.is_alive() for name, thread in self.threads.items() if name == part.name or (kind != "nginx" and name.startswith(f"{kind}-")))

    def kill(self, part: Part, away: float) -> None:
        part.kill()
        self.tell({"what": "killed", "part": part.name, "at": time.time() * 1000})
        thread = threading.Thread(target=self._restart, args=(part, away), daemon=True)
        self.threads[part.name] = thread
        thread.start()

    def _restart(self, part: Part, away: float) -> None:
        time.sleep(away)
        try:
            part.start()
            part.wait()
            self.tell({"what": "up", "part": part.name, "at": time.time() * 1000})
        except (servers.Failed, OSError) as failure:
            self.failures.append(str(failure))

    def join(self) -> None:
        for thread in self.threads.values():
            thread.join()
