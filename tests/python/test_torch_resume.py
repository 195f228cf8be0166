# SPDX-License-Identifier: Apache-2.0
"""A job that is saved and resumed in new processes ends with the bits of an uninterrupted one.

Default options, with buckets small enough to have several: DDP regroups them after the first step of a process, so the
resumed job's first step has other buckets than the same step of the uninterrupted one.
"""

import io

import pytest
from processes import run_ranks

STEPS, SAVED_AT = 25, 10
# None: the default codec of attach(). Three ranks, because with two every order of a sum gives the same bits.
CODECS = [None, "bf16", "topk", "dgc:feedback=momentum", "onebit", "qsgd", "powersgd", "thc", "fp8_shared"]
WORLD = 3


def _model():
    import torch

    torch.manual_seed(3)
    layers = []
    for _ in range(6):  # weights of 64K values; biases and norms far below min_values
        layers += [torch.nn.Linear(256, 256), torch.nn.LayerNorm(256), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(256, 10))


def _job(rank, world, saved):
    """Returns, per codec, parameters and residuals at the end, and the saved states."""
    import torch

    import tithe.torch

    ends = {}
    for codec in CODECS:
        model = torch.nn.parallel.DistributedDataParallel(_model(), bucket_cap_mb=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        state = tithe.torch.attach(model, **({} if codec is None else {"codec": codec}))
        first = 0
        if saved is not None:
            at = torch.load(io.BytesIO(saved[rank][codec]["checkpoint"]))
            model.module.load_state_dict(at["model"])
            optimizer.load_state_dict(at["optimizer"])
            state.load_state_dict(at["tithe"])
            first = SAVED_AT
        checkpoint = None
        for step in range(first, STEPS):
            if step == SAVED_AT:
                file = io.BytesIO()
                torch.save(
                    {
                        "model": model.module.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "tithe": state.state_dict(),
                    },
                    file,
                )
                checkpoint = file.getvalue()
            draws = torch.Generator().manual_seed(1000 * step + rank)
            inputs = torch.randn(16, 256, generator=draws)
            targets = torch.randint(10, (16,), generator=draws)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        ends[codec] = {
            "parameters": [p.detach().numpy().tobytes() for p in model.parameters()],
            "residuals": [state.residual(p).numpy().tobytes() for p in model.parameters()],
            "checkpoint": checkpoint,
        }
        state.close()
    return ends


@pytest.fixture(scope="module")
def ends():
    whole = run_ranks(WORLD, _job, None)
    return whole, run_ranks(WORLD, _job, whole)


@pytest.mark.parametrize("codec", CODECS)
def test_resume_is_bit_identical_at_default_options(ends, codec):
    whole, resumed = ends
    for rank in range(WORLD):
        for what in ("parameters", "residuals"):
            assert whole[rank][codec][what] == resumed[rank][codec][what], f"{what} of rank {rank}"
