# SPDX-License-Identifier: Apache-2.0
"""A job that continues when ranks are lost or join; docs/guide/elastic.md. One process per rank, in a new folder:

python examples/elastic.py FOLDER ann ann,bob,cay    # the same with bob and with cay: the first members
python examples/elastic.py FOLDER dan                # at any time: a rank that joins later

Kill one of them with `kill -9`: the others continue.
"""

import sys
import time

import numpy as np

import tithe

STEPS, STEP_SECONDS = 400, 0.05
folder, me, *begin = sys.argv[1:]
target = np.linspace(-1, 1, 2000, dtype=np.float32)
weights, step = np.zeros_like(target), 0

job = tithe.Membership(
    folder, me, begin[0].split(",") if begin else (), min_world=2, codec="topk:ratio=0.1", min_values=0, transport="tcp"
)


def all_there():  # the state that a rank needs if it joins later
    return step.to_bytes(8, "little") + weights.tobytes()


def go_on():
    began = time.monotonic()
    job.reform(session, state=all_there)
    stats = session.stats()
    print(
        f"{me}: epoch {job.epoch} with {', '.join(job.members)} after {1e3 * (time.monotonic() - began):.0f} ms, "
        f"{stats['ranks_lost']} lost",
        flush=True,
    )


with job.open() as session:
    if job.received_state:
        step = int.from_bytes(job.received_state[:8], "little")
        weights = np.frombuffer(job.received_state[8:], np.float32).copy()
    while step < STEPS:
        time.sleep(STEP_SECONDS)  # simulates the forward and backward pass
        gradient = weights - target + np.float32(0.1 * len(me))
        try:
            session.wait(session.sync({"w": gradient}))
            session.commit()
        except tithe.Error as error:
            print(f"{me}: step {step}: {error}", flush=True)
            go_on()
            continue  # repeats the step with the remaining ranks
        weights -= 0.2 * gradient
        step += 1
        if step % 20 == 0:
            print(f"{me}: step {step}", flush=True)
        if job.new_ranks_waiting():
            go_on()
    print(f"{me}: {step} steps, weights {weights.astype(np.float64).sum():.9f}", flush=True)
