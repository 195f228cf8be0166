# SPDX-License-Identifier: Apache-2.0
"""LocalSteps that is saved and continues in new processes ends with the bits of an uninterrupted run."""

import io

import pytest
import torch
from local_jobs import CLASSES, FEATURES, bits, inner, step
from processes import run_ranks

STEPS = 32
SETTINGS = {"every": 6, "fragments": 2, "delay": 2, "codec": "onebit", "outer": "nesterov", "min_values": 0}
# In the dense start, in a window, with an exchange under way, and right after a merge; SETTINGS begin at iteration 7.
SAVED_AT = [4, 12, 14, 15]


def _network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, CLASSES))


def _job(rank, world, saved):
    """Returns the final bits, and checkpoints of the run. saved: the checkpoint to continue from, by iteration."""
    import tithe.torch

    ends, kept = {}, {}
    for first in [0] if saved is None else SAVED_AT:
        network = _network()
        optimizer = inner(network)
        local = tithe.torch.LocalSteps(network, optimizer, start=7, timeout=20.0, start_codec="onebit", **SETTINGS)
        if first:
            at = torch.load(io.BytesIO(saved[rank][first]), weights_only=True)
            network.load_state_dict(at["model"])
            optimizer.load_state_dict(at["optimizer"])
            local.load_state_dict(at["local"])
        with local:
            for number in range(first, STEPS):
                if saved is None and number in SAVED_AT:
                    file = io.BytesIO()
                    states = {"model": network, "optimizer": optimizer, "local": local}
                    torch.save({name: thing.state_dict() for name, thing in states.items()}, file)
                    kept[number] = file.getvalue()
                step(network, optimizer, rank, number)
            before = bits(network)
        stats = local.stats()
        ends[first] = (before, bits(network), stats["exchanges"], stats["steps"], stats["iterations"])
    return (ends, kept) if saved is None else ends


@pytest.fixture(scope="module")
def ends():
    whole = run_ranks(3, _job, None)
    return whole, run_ranks(3, _job, [kept for _, kept in whole])


@pytest.mark.parametrize("first", SAVED_AT)
def test_resume_is_bit_identical(ends, first):
    whole, resumed = ends
    for rank in range(3):
        assert resumed[rank][first] == whole[rank][0][0], f"rank {rank}"


def test_checkpoints_have_the_documented_paths(ends):
    def of(number):
        ((part,),) = torch.load(io.BytesIO(ends[0][0][1][number]), weights_only=True)["local"].values()
        return part

    assert of(4)["start"] is not None and of(12)["start"] is None
    assert [of(at)["arrived"] is not None for at in SAVED_AT] == [False, False, True, False]
    assert [of(at)["counts"]["since"] for at in SAVED_AT] == [0, 2, 1, 2]
    assert of(14)["base"] and not of(15)["base"]


REFUSED = [
    ({"world": 5}, {}, "saved by 5 ranks and this job has 3"),
    ({"rank": 7}, {}, "saved by rank 7"),
    ({}, {"every": 12}, "every=6, and here it is 12"),
    ({}, {"outer": "mean"}, "outer='nesterov', and here it is 'mean'"),
    ({"outer": {}}, {}, "another model"),
    ({"format": 0}, {}, "not a state of this version"),
    (None, {}, "other values of '0.weight'"),  # the model was not loaded
]


def _refusals(rank, world, saved):
    import tithe.torch

    errors = []
    for change, settings, _ in REFUSED:
        network = _network()
        given = {**SETTINGS, "start": 7, "timeout": 20.0, "start_codec": "onebit", **settings}
        local = tithe.torch.LocalSteps(network, inner(network), **given)
        at = torch.load(io.BytesIO(saved[rank][12]), weights_only=True)
        ((part,),) = at["local"].values()
        local.load_state_dict({**part, **(change or {})})
        if change is not None:
            network.load_state_dict(at["model"])
        with pytest.raises(ValueError) as error:
            with local:
                pass
        errors.append(str(error.value))
    network = _network()
    with tithe.torch.LocalSteps(network, inner(network), start=0, timeout=20.0) as local:
        with pytest.raises(ValueError, match="before LocalSteps is entered"):
            local.load_state_dict({})
    return errors


def test_states_of_other_runs_are_refused(ends):
    for errors in run_ranks(3, _refusals, [kept for _, kept in ends[0]]):
        for text, (_, _, expected) in zip(errors, REFUSED, strict=True):
            assert expected in text
