# SPDX-License-Identifier: Apache-2.0
"""tithe.accelerate: attach after prepare; save_state and load_state save and load the residuals of all ranks."""

import os
from pathlib import Path

import pytest
from processes import run_ranks

CODEC = {"codec": "topk:ratio=0.05", "min_values": 0, "timeout": 30.0}
WAYS = {"per rank": True, "gathered": False}


def _accelerator(rank, world):
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1", MASTER_PORT="1", ACCELERATE_USE_CPU="true",
    )  # fmt: skip
    import accelerate

    return accelerate.Accelerator(cpu=True)


def _setup(accelerator):
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    return accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5))


def take_steps(accelerator, model, optimizer, steps):
    import torch

    for step in steps:
        draws = torch.Generator().manual_seed(100 * step + accelerator.process_index)
        inputs, targets = torch.randn(8, 16, generator=draws), torch.randint(4, (8,), generator=draws)
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()


def _train(accelerator, model, optimizer, steps):
    take_steps(accelerator, model, optimizer, steps)
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def _job(rank, world, folder):
    """Trains, saves and resumes by each way. Returns bits, statistics and refusals."""
    import torch

    import tithe
    import tithe.accelerate

    results = {}
    for way, per_rank in WAYS.items():
        accelerator = _accelerator(rank, world)
        model, optimizer = _setup(accelerator)
        state = tithe.accelerate.attach(accelerator, model, per_rank=per_rank, **CODEC)
        half, rest = range(4), range(4, 8)
        _train(accelerator, model, optimizer, half)
        accelerator.save_state(f"{folder}/{way}")
        results[way, "whole"] = _train(accelerator, model, optimizer, rest)
        results[way, "rounds"] = state.stats()["rounds"]
        state.close()
        accelerator.free_memory()

        accelerator = _accelerator(rank, world)
        model, optimizer = _setup(accelerator)
        state = tithe.accelerate.attach(accelerator, model, per_rank=per_rank, **CODEC)
        accelerator.load_state(f"{folder}/{way}")
        results[way, "resumed"] = _train(accelerator, model, optimizer, rest)
        results[way, "residual"] = float(sum(state.residual(p).abs().sum() for p in model.parameters()))
        state.close()
        accelerator.free_memory()
        accelerator.wait_for_everyone()
        results[way, "files"] = sorted(
            f.name for f in Path(folder, way).iterdir() if "tithe" in f.name or "custom" in f.name
        )

    accelerator = _accelerator(rank, world)
    model, _ = _setup(accelerator)
    tithe.accelerate.attach(accelerator, model, **CODEC)
    accelerator.wait_for_everyone()
    path = Path(folder, "per rank", "tithe_0_rank_1.pt")
    if rank == 1:
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError if rank == 1 else tithe.Error) as refused:
        accelerator.load_state(f"{folder}/per rank")
    results["cut"] = str(refused.value)
    if rank == 1:
        path.unlink()
    with pytest.raises(ValueError if rank == 1 else tithe.Error) as refused:
        accelerator.load_state(f"{folder}/per rank")
    results["missing"] = str(refused.value)
    with pytest.raises(ValueError, match="call attach after prepare"):
        tithe.accelerate.attach(accelerator, torch.nn.Linear(2, 2), **CODEC)
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_ranks(2, _job, str(tmp_path_factory.mktemp("accelerate")))


@pytest.mark.parametrize("way", WAYS)
def test_accelerate_trains_through_tithe_and_resumes_lossy_states_bit_identically(results, way):
    """register_for_checkpointing(state) would save rank 0's state only, from which no other rank can continue."""
    for rank in results:
        assert rank[way, "rounds"] == 8
        assert rank[way, "resumed"] == rank[way, "whole"] == results[0][way, "whole"]
        assert rank[way, "residual"] > 0
    assert (
        results[0][way, "files"]
        == {
            "per rank": ["tithe_0_rank_0.pt", "tithe_0_rank_1.pt"],
            "gathered": ["custom_checkpoint_0.pkl"],
        }[way]
    )


def test_missing_file_of_one_rank_is_reported_on_all_ranks(results):
    assert "tithe_0_rank_1.pt is not there" in results[1]["missing"]
    assert results[0]["missing"].startswith("rank 1 refused accelerator.load_state(): ValueError: ")
    assert results[1]["missing"] in results[0]["missing"]


def test_truncated_file_of_one_rank_is_named_on_all_ranks(results):
    assert all("per rank/tithe_0_rank_1.pt' is damaged" in each["cut"] for each in results)


def _alone(rank, world):
    import tithe.accelerate

    accelerator = _accelerator(rank, world)
    model, optimizer = _setup(accelerator)
    assert tithe.accelerate.attach(accelerator, model, **CODEC) is None
    _train(accelerator, model, optimizer, range(2))


def test_accelerate_with_one_process_trains_without_tithe():
    run_ranks(1, _alone)
