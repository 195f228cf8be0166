#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce of fp32 by Gloo (torch), OpenMPI and tithe, in turn, between the same processes of this machine.

    python lab/bench/gloo_vs_tithe.py                                    the table: every link, 64 KB to 100 MB, 4 ranks
    python lab/bench/gloo_vs_tithe.py --links tcp --sizes 25MB --tithe tcp        one row
    python lab/bench/gloo_vs_tithe.py --links 100mbit --sizes 1MB --codec bf16    with a codec of yours

A link is `tcp` (the loopback), `memory` (shared memory; Gloo has none and uses the loopback), or a rate such as
`1gbit`: then each rank has a network namespace behind a shaped link (lab/hosts/hosts.py). Each round begins at a
barrier with new values, and its time is that of its slowest rank. A cell has the median milliseconds of its rounds.
Ratios are medians over neighbouring rounds of the faster of Gloo and OpenMPI to tithe (above 1: tithe is faster), with
the quartiles. The sums are compared with each other. OpenMPI is installed by `tools/setup.sh build mpi`; without it,
its column is empty.
"""

import argparse
import ctypes
import ctypes.util
import json
import os
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import processor

from hosts import SUBNET, Hosts, die_with_parent, enter, parse_rate

INSIDE = "TITHE_BENCH_INSIDE"  # set in the private namespaces
SIZES = {"64KB": 65_536, "1MB": 1_000_000, "25MB": 25_000_000, "100MB": 100_000_000}
LINKS = ("tcp", "memory", "1gbit", "100mbit")


class Mpi:
    """MPI_Allreduce of floats, from the OpenMPI that started this process."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
        self.lib.MPI_Init(None, None)
        world, kind, op = ("ompi_mpi_comm_world", "ompi_mpi_float", "ompi_mpi_op_sum")
        self.world, self.kind, self.op = (
            ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self.lib, name))) for name in (world, kind, op)
        )

    def all_reduce(self, address: int, n: int) -> None:
        in_place = ctypes.c_void_p(1)
        wrong = self.lib.MPI_Allreduce(
            in_place, ctypes.c_void_p(address), ctypes.c_int(n), self.kind, self.op, self.world
        )
        if wrong:
            raise SystemExit(f"MPI_Allreduce: error {wrong}")

    def close(self) -> None:
        self.lib.MPI_Finalize()


def rounds_for(size: int, link: str, args: argparse.Namespace) -> int:
    """Returns the number of rounds, so that all rounds of a row take about a minute on a shaped link."""
    if args.rounds:
        return args.rounds
    if link not in ("tcp", "memory"):
        seconds = 1.5 * size * 8 / parse_rate(link)
        return int(min(15, max(3, 15 / max(seconds, 1e-3))))
    return 41 if size < 5_000_000 else 11


def run_rank(args: argparse.Namespace, rank: int) -> None:
    """Runs one rank: all sizes by all libraries in turn, with a barrier before each round. Appends the rows to args.out
    as JSON lines."""
    import torch
    import torch.distributed as dist

    import tithe
    from tithe._exchange import all_gather_bytes

    torch.set_num_threads(1)
    mpi = Mpi() if args.mpi else None
    os.environ.update(MASTER_ADDR=args.master, MASTER_PORT=str(args.port))
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    sessions = {
        name: tithe.Session.open(
            rank,
            args.ranks,
            lambda address: all_gather_bytes(address, dist.group.WORLD, 60.0, "bench"),
            transport=name,
            codec=args.codec,
            strategy=args.strategy,
            average=False,
            lanes=args.lanes,
        )
        for name in args.tithe.split(";")
    }
    for size in args.sizes.split(","):
        n = SIZES[size] // 4
        data = torch.rand(n, generator=torch.Generator().manual_seed(rank))
        mine = torch.empty(n)
        view = mine.numpy()

        def by(session: "tithe.Session", name: str = size, view: object = view) -> Callable[[], None]:
            def one_round() -> None:
                session.sync({name: view})
                session.commit()  # waits until the round is over

            return one_round

        steps: dict[str, Callable[[], object]] = {"Gloo": lambda mine=mine: dist.all_reduce(mine)}
        if mpi:
            steps["OpenMPI"] = lambda mine=mine, n=n: mpi.all_reduce(mine.data_ptr(), n)
        steps |= {name: by(session) for name, session in sessions.items()}
        rounds = rounds_for(SIZES[size], args.link, args)
        times: dict[str, list[float]] = {name: [] for name in steps}
        cpu = dict.fromkeys(steps, 0.0)
        sums = {}
        for r in range(args.warm + rounds):
            for name, step in steps.items():
                mine.copy_(data)
                dist.barrier()
                begin, begin_cpu = time.perf_counter(), time.process_time()
                step()
                seconds, spent = time.perf_counter() - begin, time.process_time() - begin_cpu
                if r == 0:
                    sums[name] = mine[:: max(1, n // 100_000)].clone()
                slowest = torch.tensor([seconds], dtype=torch.float64)
                dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
                if r >= args.warm:
                    times[name].append(float(slowest))
                    cpu[name] += spent / rounds
        if args.codec == "fp32":
            for name, mine_sum in sums.items():
                if not torch.allclose(sums["Gloo"], mine_sum, rtol=1e-5, atol=1e-6):
                    raise SystemExit(f"the sums of Gloo and {name} differ")
        if rank == 0:
            row = {"link": args.link, "size": size, "rounds": rounds, "ms": {}, "cpu_ms": {}, "ratio": {}}
            others = [name for name in ("Gloo", "OpenMPI") if name in steps]
            best = [min(times[name][r] for name in others) for r in range(rounds)]
            for name in steps:
                row["ms"][name] = statistics.median(times[name]) * 1e3
                row["cpu_ms"][name] = cpu[name] * 1e3
                if name in sessions:
                    ratios = [b / t for b, t in zip(best, times[name], strict=True)]
                    row["ratio"][name] = statistics.quantiles(ratios, n=4)
            with open(args.out, "a") as out:
                out.write(json.dumps(row) + "\n")
        dist.barrier()
    for session in sessions.values():
        session.close()
    dist.destroy_process_group()
    if mpi:
        mpi.close()


# Connects to an emulated host, by a name of its own, as OpenMPI's ssh does to another machine.
AGENT = """#!/bin/sh
host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
"""


def command_of(args: argparse.Namespace, hosts: Hosts, line: list[str], folder: Path) -> list[list[str]]:
    """Returns the commands to start: one mpirun, or one per rank without OpenMPI."""
    if not args.mpi:
        return [[*hosts.prefix(r), *line, "--rank", str(r)] for r in range(args.ranks)]
    # A rank that spins while it waits would take a processor from the others. OpenMPI itself yields if there are more
    # ranks than processors.
    run = ["mpirun", "-np", str(args.ranks), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    run += ["--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ob1"]
    run += ["--mca", "btl", "vader,self" if args.link == "memory" else "tcp,self"]
    run += ["--mca", "btl_vader_single_copy_mechanism", "cma"] if args.link == "memory" else []
    if not hosts.link:
        return [[*run, "--mca", "btl_tcp_if_include", "lo", *line]]
    agent, names = folder / "agent", folder / "hosts"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    names.write_text("".join(f"rank{r} slots=1\n" for r in range(args.ranks)))
    for way in ("btl_tcp_if_include", "oob_tcp_if_include"):
        run += ["--mca", way, f"{SUBNET}.0/24"]
    run += ["--mca", "plm_rsh_agent", str(agent), "--hostfile", str(names)]
    # mpirun runs on a host of its own; otherwise the name of its first host would resolve to this machine.
    whole = [*hosts.prefix(0), "unshare", "--uts", "sh", "-c"]
    return [[*whole, "hostname rank0; exec " + shlex.join([*run, *line])]]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_link(args: argparse.Namespace) -> int:
    hosts = Hosts(ranks=args.ranks, link=None if args.link in ("tcp", "memory") else args.link)
    hosts.build()
    tithe = args.tithe
    if not tithe:
        ways = {"tcp": "tcp;ucx:transports=tcp", "memory": "ucx"}
        tithe = ways.get(args.link, f"tcp:trust={SUBNET}.0/24;ucx:transports=tcp")
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, __file__, "--ranks", str(args.ranks), "--sizes", args.sizes, "--codec", args.codec]
        line += ["--strategy", args.strategy, "--lanes", str(args.lanes), "--rounds", str(args.rounds)]
        line += ["--warm", str(args.warm), "--link", args.link, "--out", args.out, "--tithe", tithe]
        line += ["--master", hosts.address(0), "--port", str(29_500 if hosts.link else free_port())]
        line += ["--mpi"] if args.mpi else []
        env = {**os.environ, "UCX_LOG_LEVEL": "fatal", "GLOO_SOCKET_IFNAME": hosts.interface}
        if args.link != "memory":
            env["UCX_NET_DEVICES"] = hosts.interface
        running = [
            subprocess.Popen(one, env=env, preexec_fn=die_with_parent)
            for one in command_of(args, hosts, line, Path(folder))
        ]
        return max(abs(one.wait()) for one in running)


def print_table(rows: list[dict], args: argparse.Namespace) -> None:
    import torch

    machine = f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{machine}, torch {torch.__version__}; ", end="")
    print(f"{args.ranks} ranks, {args.codec}, {args.strategy}, lanes={args.lanes}; milliseconds\n")
    print(
        "| link | size | Gloo | OpenMPI | tithe over | ms | Gloo / tithe | best of both / tithe | quartiles |", end=""
    )
    print(" CPU ms of a rank: Gloo, OpenMPI, tithe |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        ms, cpu = row["ms"], row["cpu_ms"]
        for name, (low, middle, high) in row["ratio"].items():
            cells = [row["link"], row["size"], f"{ms['Gloo']:.2f}"]
            cells += [f"{ms['OpenMPI']:.2f}" if "OpenMPI" in ms else "not here", f"`{name}`", f"{ms[name]:.2f}"]
            cells += [f"{ms['Gloo'] / ms[name]:.2f}", f"**{middle:.2f}**", f"{low:.2f} to {high:.2f}"]
            cells += [", ".join(f"{cpu[k]:.1f}" for k in ("Gloo", "OpenMPI", name) if k in cpu)]
            print(f"| {' | '.join(cells)} |")


def main() -> int:
    """Reads the command line, and runs the rows of each link, on shaped links inside private namespaces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", default=",".join(LINKS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--tithe", default="", help="transports, with ; between; default: tcp and ucx")
    parser.add_argument("--codec", default="fp32")
    parser.add_argument("--strategy", default="ring")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=0, help="default: as many as a minute holds")
    parser.add_argument("--warm", type=int, default=2)
    for name in ("--link", "--master", "--out"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    for name in ("--rank", "--port"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--mpi", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", args.rank)
    if rank is not None and args.out:
        run_rank(args, int(rank))
        return 0
    if args.link:  # in the private namespaces
        return run_link(args)
    args.mpi = shutil.which("mpirun") is not None and ctypes.util.find_library("mpi") is not None
    if not args.mpi:
        print("OpenMPI is not here: its column is empty (tools/setup.sh build mpi)", file=sys.stderr)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows"
        out.touch()
        for link in args.links.split(","):
            args.link, args.out = link, str(out)
            if link in ("tcp", "memory"):
                status = run_link(args)
            else:
                given = [item for item in sys.argv[1:] if item]
                more = ["--link", link, "--out", str(out), *(["--mpi"] if args.mpi else [])]
                status = enter([sys.executable, __file__, *given, *more])
            if status:
                print(f"{link}: a rank ended with {status}", file=sys.stderr)
                return status
        print_table([json.loads(line) for line in out.read_text().splitlines()], args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
