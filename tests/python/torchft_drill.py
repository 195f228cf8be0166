# SPDX-License-Identifier: Apache-2.0
"""Replicas in one process, each with torchft's own Manager; the quorums and the failures are simulated.

After each step that counted: gradients + residuals before = sum + residuals after, over the participants.
test_torchft.py starts torchft_drill.py SEEDS. It prints the number of each event.
"""

import collections
import json
import logging
import os
import random
import sys
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist
import torchft.manager
import torchft.process_group

import tithe.torchft

SIZES = (300, 500)
MISHAPS = ("before", "between", "after", "unhealed", "slow", "impatient", "cut")
# Steps of a job in order: the members of the quorum, and a replica with its event; or a replica that restarts.
SCRIPTS = {
    "one comes again, and heals": "abc abc ab abc abc abc",
    "one heals, and fails between two buckets": "abc abc abc!c=after abc abc!c=between abc abc",
    "one heals, and none begins the next step": "abcd abcd abcd!c=after abcd abc!abc=before abc abc",
    "one fails again and again": "abc abc abc!c=after abc!c=between abc!c=unhealed abc!c=before abc abc",
    "one does not wait for another": "abc abc!a=impatient!c=slow abc abc",
    "nobody's step counts": "abc abc abc!abc=after abc ab!ab=after abc abc",
    "who took a step back is gone": "abc abc!abc=after -a ac ac -c ab abc abc",
    "fragments: one comes again": "abc abc ab ab abc abc abc abc",
}
happened = collections.Counter()


class Client:
    """torchft's client of its manager's server: returns the simulated decisions of the job."""

    replicas = {}

    def __init__(self, address, connect_timeout=None):
        self.address = address

    def _quorum(self, **_):
        return Client.replicas[self.address].quorum

    def _checkpoint_metadata(self, *_, **__):
        return ""

    def should_commit(self, group_rank, step, should, timeout):
        return should


STORE = dist.HashStore()
torchft.manager.ManagerClient = Client
torchft.manager.TCPStore = lambda **_: STORE
torchft.process_group.create_store_client = lambda address, timeout: dist.PrefixStore(address, STORE)


class Checkpoints:
    """A checkpoint transport whose checkpoints contain only the step."""

    def __init__(self, replica):
        self.replica = replica

    def metadata(self):
        return ""

    def send_checkpoint(self, **_):
        pass

    def recv_checkpoint(self, src_rank, metadata, step, timeout):
        if self.replica.mishap == "unhealed":
            raise RuntimeError("no checkpoint comes")
        happened["healed"] += 1
        return {"user": {"default": None}, "torchft": {"step": step, "batches_committed": 0}}

    def disallow_checkpoint(self):
        pass

    def shutdown(self, wait=True):
        pass


class Bucket:
    def __init__(self, number, parameter, values, last):
        self.number, self.parameter, self.values, self.last = number, parameter, values, last

    def index(self):
        return self.number

    def is_last(self):
        return self.last

    def parameters(self):
        return [self.parameter]

    def buffer(self):
        return self.values


def quarters(seed):
    """Returns gradients whose sums are exact."""
    return np.random.default_rng(seed).integers(-32, 33, sum(SIZES)).astype(np.float32) / 4


class Replica:
    def __init__(self, name, number, fragments):
        self.id = f"{name}:{number}"
        self.parameters = [torch.nn.Parameter(torch.zeros(n)) for n in SIZES]
        # No replica may wait for patience. After a quarter of the timeout, a rank that left between two buckets is
        # given up.
        options = {"min_values": 0, "timeout": 4.0, "patience": 300.0, "transport": "tcp"}
        self.group = tithe.torchft.ProcessGroup(codec="topk:ratio=0.05", **options)
        Client.replicas[self.id] = self
        STORE.set(torchft.manager.MANAGER_ADDR_KEY, self.id)
        STORE.set(torchft.manager.REPLICA_ID_KEY, self.id)
        self.manager = torchft.Manager(
            pg=self.group,
            min_replica_size=2,
            load_state_dict=lambda _: None,
            state_dict=dict,
            use_async_quorum=not fragments,
            timeout=timedelta(seconds=30),
            rank=1,
            world_size=2,
            store_addr="nowhere",
            store_port=1,
            replica_id=name,
            checkpoint_transport=Checkpoints(self),
        )
        self.group.take(self.manager, [(f"p{i}", p) for i, p in enumerate(self.parameters)])
        self.owed = np.zeros(sum(SIZES))
        self.mishap = self.quorum = None

    def residual(self):
        return np.concatenate([self.of(p) for p in self.parameters]).astype(np.float64)

    def of(self, parameter):
        try:
            return self.group.residual(parameter).numpy()
        except ValueError:  # no round contained it
            return np.zeros(parameter.numel())

    def step(self, seed, numbers):
        """Runs a step with these buckets. The replica stores the outcome."""
        chance, fails = random.Random(seed), lambda: self.manager.report_error(RuntimeError(self.mishap))
        values = torch.from_numpy(quarters(seed))
        sent = np.repeat([i in numbers for i in range(len(SIZES))], SIZES)
        self.given = np.where(sent, quarters(seed), 0)
        self.manager._timeout = timedelta(seconds=0.05 if self.mishap == "impatient" else 30)
        self.manager.start_quorum()
        if self.mishap == "before":
            fails()
        futures, timers = [], []
        for i in numbers:
            if self.mishap == "slow":
                time.sleep(0.15)
            if self.mishap == "cut":
                timers.append(threading.Timer(0.02 * chance.random(), self.group.abort))
                timers[-1].start()
            bucket = Bucket(numbers.index(i), self.parameters[i], values.split(SIZES)[i], i == numbers[-1])
            futures.append(self.group.average(self.manager, bucket))
            if self.mishap == "between" and i != numbers[-1]:
                fails()
        for future in futures:
            future.wait()
        if self.mishap == "after":
            fails()
        self.number = self.manager.current_step()
        if not self.manager.is_participating():
            self.given = np.zeros_like(self.given)
        self.counted = self.manager.should_commit()
        self.values, self.then = values, values.clone()
        total = np.rint(4.0 * self.manager.num_participants() * values.numpy().astype(np.float64)) / 4
        self.total = np.where(sent, total, 0)
        for timer in timers:
            timer.join()


class Job:
    def __init__(self, name, names, fragments=False):
        self.name, self.fragments, self.steps, self.started = name, fragments, 0, 0
        self.replicas = {each: self.fresh(each) for each in names}
        self.quorum, self.number, self.failed = [], 0, set()

    def fresh(self, name):
        self.started += 1
        return Replica(name, self.started, self.fragments)

    def meet(self, members):
        """Simulates lighthouse and managers: a new quorum if other replicas join, or if a replica's step failed."""
        if self.quorum != members or self.failed & set(members):
            self.quorum, self.number = members, self.number + 1
        farthest = max(each.manager.current_step() for each in members)
        whole = [each for each in members if each.manager.current_step() == farthest]
        heal = [each for each in members if each not in whole or (farthest == 0 and each is not whole[0])]
        for rank, each in enumerate(members):
            each.quorum = SimpleNamespace(
                quorum_id=self.number,
                replica_rank=rank,
                replica_world_size=len(members),
                recover_src_manager_address="",
                recover_src_replica_rank=members.index(whole[0]),
                recover_dst_replica_ranks=[],
                store_address=self.name,
                max_step=farthest,
                max_replica_rank=whole.index(each) if each in whole else None,
                max_world_size=len(whole),
                heal=each in heal,
                replica_ids=[m.id for m in members],
            )

    def step(self, names, mishaps):
        members = [self.replicas[name] for name in names]
        self.steps += 1
        self.meet(members)
        threads = []
        numbers = [self.steps % 2] if self.fragments else [1, 0]
        for name, each in zip(names, members, strict=True):
            each.mishap = mishaps.get(name)
            happened[each.mishap] += each.mishap is not None
            each.values = None
            seed = hash((self.steps, *map(ord, each.id + self.name))) % 2**31
            threads.append(threading.Thread(target=each.step, args=(seed, numbers), daemon=True))
        assert together(threads), (self.name, self.steps, names, mishaps, "it hangs")
        assert all(each.values is not None for each in members), (self.name, self.steps, "one raised something")
        self.failed = {each for each in self.replicas.values() if each.manager._commit_failures}
        self.check(names, members, mishaps)

    def check(self, names, members, mishaps):
        at = self.name, self.steps, names, mishaps
        for each in members:
            assert torch.equal(each.values, each.then), (*at, "a bucket changed after its step")
        counted = [each for each in members if each.counted]
        if not counted:
            happened["counted for nobody"] += 1
            return
        happened["counted" if len(counted) == len(members) else "counted for some"] += 1
        (total,) = {each.total.tobytes() for each in counted}
        after = [each.residual() for each in members]
        left = sum(each.given for each in members) + sum(each.owed for each in members)
        if not np.array_equal(left, np.frombuffer(total) + sum(after)):
            # No replica can determine which part of its step the others have: docs/guide/elastic.md.
            assert let_go, (*at, [(each.id, each.mishap, each.number, each.counted) for each in members])
        let_go.clear()
        for each, now in zip(members, after, strict=True):
            each.owed = now

    def kill(self, name):
        self.replicas[name].group.shutdown()
        self.replicas[name] = self.fresh(name)
        happened["started anew"] += 1

    def end(self):
        assert together([threading.Thread(target=each.group.shutdown) for each in self.replicas.values()])


def together(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return not any(thread.is_alive() for thread in threads)


let_go = []


class Handler(logging.Handler):
    def emit(self, record):
        if "missed a step that the others have" in record.getMessage():
            happened["let go"] += 1
            let_go.append(record.getMessage())


def scripted(name):
    steps = [step.split("!") for step in SCRIPTS[name].split()]
    job = Job(name, "".join(sorted(set("".join(step[0] for step in steps)) - {"-"})), name.startswith("fragments"))
    for names, *mishaps in steps:
        if names.startswith("-"):
            job.kill(names[1:])
            continue
        job.step(names, {each: what for m in mishaps for who, what in [m.split("=")] for each in who})
    job.end()


def seeded(seed):
    chance = random.Random(seed)
    job = Job(f"seed {seed}", "abc", seed % 4 == 3)
    for _ in range(20):
        at = {name: each.manager.current_step() for name, each in job.replicas.items()}
        names = "".join(sorted(chance.sample("abc", 3 if chance.random() < 0.75 else 2)))
        if max(at.values()) > max(at[name] for name in names):  # torchft lets those continue alone, from an older step
            names = "abc"
        happened["missed a quorum"] += len(names) < 3
        mishaps = {name: chance.choice(MISHAPS) for name in names if chance.random() < 0.2}
        job.step(names, mishaps if chance.random() < 0.9 else dict.fromkeys(names, chance.choice(MISHAPS[:3])))
        name = chance.choice("abc")
        if chance.random() < 0.1 and any(at[other] >= at[name] for other in at if other != name):
            job.kill(name)
    job.end()


if __name__ == "__main__":
    logging.getLogger("tithe.torch").addHandler(Handler())
    for logger in ("torchft.manager", "torchft_quorums", "torchft_errors", "torchft_commits"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    for script in SCRIPTS:
        scripted(script)
    for number in map(int, sys.argv[1:]):
        seeded(number)
    print(json.dumps(happened), flush=True)
    os._exit(0)  # threads of the managers keep the interpreter
