"""What the database of a cluster does for each run and each follower: `integration/cluster --measure`.

PostgreSQL counts its own statements (pg_stat_statements) and transactions. The baseline of an idle cluster is subtracted.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor

import parts
import servers

IDLE_SECONDS = 60.0
FOLLOW_SECONDS = 60.0  # of the window in which followers are counted
CONNECT_SECONDS = 300.0  # until all followers must be connected
SETTLE_SECONDS = 5.0
STEPS = (5, 20)  # of a run: the difference is the cost of a step
DELAY_SECONDS = 1.0  # of a step
SPREAD_SECONDS = 20.0  # in which the runs begin
TICKS = os.sysconf("SC_CLK_TCK")
TOP = 12  # statements that are shown


class Counter:
    """The database's counters, and the CPU time of each kind of part, since the last reset."""

    def __init__(self, cluster: parts.Cluster) -> None:
        self.cluster, self.postgres = cluster, cluster.postgres
        self.postgres.query("create extension if not exists pg_stat_statements")
        self.reset()

    def reset(self) -> None:
        self.postgres.query("select pg_stat_statements_reset()")
        self.began, self.before, self.cpu = time.monotonic(), self._database(), self._cpu()

    def _database(self) -> list[int]:
        sql = "select xact_commit + xact_rollback, tup_returned, tup_fetched, tup_inserted + tup_updated + tup_deleted, blks_hit + blks_read"
        return [int(field) for field in self.postgres.query(f"{sql} from pg_stat_database where datname = 'aegra'")[0]]

    def _cpu(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for part in self.cluster.parts:
            kind = part.name.rstrip("-12345").replace("nginx-inner", "nginx").replace("nginx-edge", "nginx")
            for pid in parts.descendants(part.process.pid):
                try:
                    with open(f"/proc/{pid}/stat") as stat:
                        fields = stat.read().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                found[kind] = found.get(kind, 0.0) + (int(fields[11]) + int(fields[12])) / TICKS
        return found

    def read(self) -> dict:
        seconds = time.monotonic() - self.began
        calls, rows = self.postgres.query("select coalesce(sum(calls), 0), coalesce(sum(rows), 0) from pg_stat_statements where query !~ 'pg_stat'")[0]
        transactions, returned, fetched, written, blocks = (now - then for now, then in zip(self._database(), self.before))
        cpu = self._cpu()
        return {
            "seconds": seconds, "statements": int(calls), "rows": int(rows), "transactions": transactions, "returned": returned, "fetched": fetched,
            "written": written, "blocks": blocks, "cpu": {kind: round(cpu[kind] - self.cpu.get(kind, 0.0), 2) for kind in cpu},
            "connections": int(self.postgres.query("select count(*) from pg_stat_activity where datname = 'aegra'")[0][0]),
        }

    def top(self) -> list[list[str]]:
        sql = "select calls, round(total_exec_time::numeric, 0), left(regexp_replace(query, '\\s+', ' ', 'g'), 150)"
        return self.postgres.query(f"{sql} from pg_stat_statements where query !~ 'pg_stat' order by calls desc limit {TOP}")


class Clients:
    def __init__(self, cluster: parts.Cluster) -> None:
        environment = os.environ | cluster.environment()
        self.node = cluster.processes.start(["node", "client/followers.mjs"], cwd=servers.HERE, env=environment,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what: str, **options) -> dict:
        self.node.stdin.write(json.dumps({"do": what, **options}) + "\n")
        self.node.stdin.flush()
        line = self.node.stdout.readline()
        if not line:
            raise servers.Failed("the clients have ended")
        return json.loads(line)


def make_threads(cluster: parts.Cluster, number: int) -> list[str]:
    def one(_: int) -> str:
        thread_id = str(uuid.uuid4())
        body = json.dumps({"thread_id": thread_id, "metadata": {"graph_id": "slow"}}).encode()
        asked = urllib.request.Request(f"{cluster.inner.url}/threads", body, {"content-type": "application/json"})
        urllib.request.urlopen(asked, timeout=60).read()
        return thread_id

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, range(number)))


def jobs(runs: int) -> int:
    """How many runs each loop of a worker takes, so that none of them waits."""
    return runs // parts.WORKER_LOOPS + 1


def say(*words) -> None:
    print(*words, flush=True)


def minus(read: dict, idle: dict, what: str) -> float:
    """The count without that of an idle cluster in the same time."""
    return read[what] - idle[what] * read["seconds"] / idle["seconds"]


def show(counter: Counter, name: str, read: dict) -> None:
    per_second = lambda what: f"{read[what] / read['seconds']:.1f}"
    cores = ", ".join(f"{kind} {spent / read['seconds']:.2f}" for kind, spent in sorted(read["cpu"].items()))
    say(f"| {name} | {read['seconds']:.0f} s | {per_second('statements')} | {per_second('transactions')} | {per_second('fetched')} | "
        f"{per_second('written')} | {read['connections']} | {cores} |")
    with (counter.cluster.logs / "statements.txt").open("a") as out:
        out.write(f"{name}: {json.dumps(read)}\n" + "".join("\t".join(row) + "\n" for row in counter.top()) + "\n")


def run(cluster: parts.Cluster, options) -> int:
    counter, clients = Counter(cluster), Clients(cluster)
    say("| phase | time | statements/s | transactions/s | rows fetched/s | rows written/s | connections | cores used |")
    say("|---|--:|--:|--:|--:|--:|--:|---|")
    threads = make_threads(cluster, options.followers + 3 * options.runs)
    followed, rest = threads[:options.followers], threads[options.followers:]
    time.sleep(SETTLE_SECONDS)
    counter.reset()
    time.sleep(IDLE_SECONDS)
    idle = counter.read()
    show(counter, "idle", idle)
    found = []

    for n, steps in enumerate(STEPS):
        counter.reset()
        told = clients.ask("run", threads=rest[n * options.runs:(n + 1) * options.runs], steps=steps, delay=DELAY_SECONDS, spread=SPREAD_SECONDS)
        time.sleep(SETTLE_SECONDS)
        read = counter.read()
        show(counter, f"{options.runs} runs of {steps} steps", read)
        say(f"# {json.dumps(told)}")
        found.append({what: minus(read, idle, what) / options.runs for what in ("statements", "transactions", "fetched", "written")})

    counter.reset()
    told = clients.ask("follow", threads=followed, seconds=CONNECT_SECONDS)
    read = counter.read()
    show(counter, f"{options.followers} followers connect", read)
    say(f"# {json.dumps(told)}")
    connect = minus(read, idle, "statements") / max(1, told["shown"])
    time.sleep(SETTLE_SECONDS)
    counter.reset()
    time.sleep(FOLLOW_SECONDS)
    read = counter.read()
    show(counter, f"{options.followers} followers, idle threads", read)
    minutes = read["seconds"] / 60
    following = {what: minus(read, idle, what) / options.followers / minutes for what in ("statements", "transactions", "fetched", "written")}

    counter.reset()
    told = clients.ask("run", threads=followed[:options.runs], steps=STEPS[-1], delay=DELAY_SECONDS, spread=SPREAD_SECONDS)
    read = counter.read()
    show(counter, f"{options.followers} followers and {options.runs} runs of {STEPS[-1]} steps in their threads", read)
    say(f"# {json.dumps(told)}")
    clients.ask("leave")

    say()
    say("| the database does, beyond an idle cluster | statements | transactions | rows fetched | rows written |")
    say("|---|--:|--:|--:|--:|")
    row = lambda name, counts: say(f"| {name} | " + " | ".join(f"{counts[what]:.1f}" for what in ("statements", "transactions", "fetched", "written")) + " |")
    for steps, counts in zip(STEPS, found):
        row(f"for a run of {steps} steps", counts)
    row("for each step more", {what: (found[1][what] - found[0][what]) / (STEPS[1] - STEPS[0]) for what in found[0]})
    row("for a follower of an idle thread, each minute", following)
    say(f"# a follower that connects costs {connect:.1f} statements")
    return 0
