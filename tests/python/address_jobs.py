# SPDX-License-Identifier: Apache-2.0
"""Two hosts as network namespaces, each with the same docker0 and the same name; test_addresses.py has the tests.

address_jobs.py hosts     inside private namespaces: runs all jobs and prints their ranks' results as JSON
address_jobs.py rank      one rank of a job, from the environment
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "lab/hosts"))

# name: transport, address of rank 0, further variables
JOBS = {
    "tcp": ("tcp:trust=10.77.0.0/24", "10.77.0.1", {}),
    "tcp by the wrong network": ("tcp:trust=172.16.0.0/12", "10.77.0.1", {}),
    "tcp by IPv6 in brackets": ("tcp:trust=fd77::/64", "[fd77::1]", {}),
    "tcp by the loopback": ("tcp:trust=127.0.0.0/8", "10.77.0.1", {}),
    "ucx": ("ucx", "10.77.0.1", {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "docker0"}),
    "ucx by a device": ("ucx:devices=eth0", "10.77.0.1", {"UCX_TLS": "tcp,self"}),
    "ucx by the variable": ("ucx", "10.77.0.1", {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}),
}


def rank():
    import numpy as np

    import tithe

    try:
        session = tithe.Session.from_environment(transport=os.environ["JOB_TRANSPORT"], codec="fp32", timeout=5.0)
        values = np.full(10_000, session.rank, "f4")
        session.wait(session.sync({"w": values}))
        session.commit()
        session.close()
        print(json.dumps({"mean": float(values.mean())}))
    except (tithe.Error, ValueError) as error:
        print(json.dumps({"code": getattr(error, "code", "invalid"), "text": str(error)}))


def run(hosts, transport, address, variables):
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": "29411", "TITHE_TOKEN": "5a" * 32}
    named = ["unshare", "--uts", "sh", "-c", 'hostname node && exec "$@"', "sh"]
    processes = [
        subprocess.Popen(
            [*hosts.prefix(r), *named, sys.executable, __file__, "rank"],
            env=os.environ | shared | variables | {"RANK": str(r), "JOB_TRANSPORT": transport},
            stdout=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    return [json.loads(p.communicate(timeout=60)[0].splitlines()[-1]) for p in processes]


def main():
    from hosts import Hosts, command

    hosts = Hosts(ranks=2, link="1gbit")
    hosts.build()
    for r in range(2):
        inside = ["ip", "-n", f"rank{r}"]
        command(*inside, "address", "add", f"fd77::{r + 1}/64", "dev", "eth0", "nodad")
        command(*inside, "link", "add", "docker0", "type", "bridge")
        command(*inside, "link", "add", "port", "type", "veth", "peer", "name", "inner")  # for a carrier
        command(*inside, "link", "set", "port", "master", "docker0", "up")
        command(*inside, "link", "set", "inner", "up")
        command(*inside, "address", "add", "172.17.0.1/16", "dev", "docker0")
        command(*inside, "link", "set", "docker0", "up")
    print(json.dumps({name: run(hosts, *how) for name, how in JOBS.items()}))


if __name__ == "__main__":
    rank() if sys.argv[1] == "rank" else main()
