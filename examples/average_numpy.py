# SPDX-License-Identifier: Apache-2.0
"""Averages numpy arrays between processes, without torch. Works under torchrun, mpirun, Slurm, or by hand:

for r in 0 1; do RANK=$r WORLD_SIZE=2 TITHE_FILE=/tmp/tithe-meet python examples/average_numpy.py & done; wait
"""

import numpy as np

import tithe

with tithe.Session.from_environment(codec="bf16", strategy="ring") as session:
    gradient = np.full((100, 100), session.rank, dtype=np.float32)
    session.wait(session.sync({"layer.weight": gradient}))  # in place
    session.commit()
    print(f"rank {session.rank} of {session.world}: mean {gradient.mean()}")
