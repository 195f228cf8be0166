# SPDX-License-Identifier: Apache-2.0
"""The figures of a FullyShardedState, as dicts and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tithe import _core
from tithe._stats import by_tensor, summed_up
from tithe.torch._hook.report import _size
from tithe.torch._sharded.fsdp_delta import MIN_VALUES
from tithe.torch._sharded.fsdp_groups import ShardedGroup
from tithe.torch._sharded.settings import LOSSLESS, WEIGHTS

if TYPE_CHECKING:
    from tithe.torch._sharded.fsdp_rounds import Rounds, Tally


def summed(rounds: Rounds, passes: int) -> dict[str, Any]:
    """Returns the session's sums, with the figures of an all-reduce replaced by those of the two collectives."""
    stats = dict(rounds.figure(summed_up))
    world = rounds.world
    stats["backward_passes"] = passes
    for name, tally in (("reduce_scatter", rounds.scatters), ("all_gather", rounds.gathers)):
        stats[name] = _figures(tally, world)
    stats["dense_bytes"] = stats["reduce_scatter"]["dense_bytes"] + stats["all_gather"]["dense_bytes"]
    stats["bytes_saved"] = stats["dense_bytes"] - stats["bytes_sent"]
    stats["exposed_ns"] = rounds.scatters.waited_ns + rounds.gathers.waited_ns
    stats["hidden_ns"] = max(0, stats["exchange_ns"] - stats["exposed_ns"])
    for norm in ("gradient_norm", "residual_norm", "relative_error", "measured_round"):
        stats[norm] = None  # a round has the tensors of one module
    del stats["groups"]
    return stats


def each(rounds: Rounds) -> dict[str, dict[str, Any]]:
    """Returns the figures of each tensor, by key."""
    return {
        key: {**tensor, "side": key.startswith(f"{WEIGHTS}."), "relative_error": None}
        for key, tensor in rounds.figure(by_tensor).items()
    }


def text(stats: dict[str, Any], codec: str, weights: str) -> str:
    passes = max(1, stats["backward_passes"])
    scatter, gather = stats["reduce_scatter"], stats["all_gather"]
    lines = [
        f"tithe.torch.FullyShardedState: gradients by {codec}, weights by {weights}",
        f"{stats['backward_passes']} backward passes, {scatter['rounds']} reduce-scatters, "
        f"{gather['rounds']} all-gathers"
        + (f", {stats['rounds_dropped']} of them dropped as not finite" if stats["rounds_dropped"] else ""),
    ]
    for what, figures in (("gradients", scatter), ("weights", gather)):
        lines.append(
            f"{what}: {_size(figures['bytes_sent'] / passes)} sent per backward pass and rank, "
            f"{_size(figures['dense_bytes'] / passes)} without a codec; waited for "
            f"{figures['waited_ns'] / passes / 1e6:.3g} ms"
        )
    return "\n".join(lines)


def beginning(groups: list[ShardedGroup], session: _core.Session, codec: str, weights: str) -> str:
    """Returns one line for the log."""
    values = sum(map(_values, groups))
    by_difference = sum(_values(group) for group in groups if _sends_differences(group, session.world, weights))
    fewer = sorted({group.path for group in groups if group.keeps_copies_within_fewer_ranks()})
    return (
        f"fully_shard() over {session.world} ranks and {session.transport}: {len(groups)} modules, {values:,} values; "
        f"gradients by {codec} to their owners, no residual; weights by "
        f"{_weights_text(weights, values - by_difference, values)}, "
        f"{'without loss' if weights in LOSSLESS else 'with loss, from exact weights at their owners'}; "
        + (
            f"{2 * by_difference:,} bytes of host memory for the previous weights"
            if by_difference
            else "no memory beside the collective under way"
        )
        + ("" if groups[0].device.type == "cpu" else f"; {_pinned_text(groups, session.world)}")
        + (f"; copies within fewer ranks (reshard_after_forward=<int>, {len(fewer)} modules) by FSDP2" if fewer else "")
    )


def _pinned_text(groups: list[ShardedGroup], world: int) -> str:
    weights, gradients = (max(sizes) for sizes in zip(*(group.pinned_bytes(world) for group in groups), strict=True))
    return (
        f"on {groups[0].device} through about {2 * weights + gradients:,} bytes of pinned host memory, for the weights "
        "of two modules and the gradients of one"
    )


def _values(group: ShardedGroup) -> int:
    return sum(group.whole(name).numel() for name, _ in group.named())


def _sends_differences(group: ShardedGroup, world: int, weights: str) -> bool:
    return weights == "delta" and group.gathered_bytes() == 2 and _values(group) >= MIN_VALUES * world


def _weights_text(weights: str, others: int, values: int) -> str:
    """others: the number of weights that delta does not send."""
    if weights != "delta" or not others:
        return weights
    needs = f"delta needs 16 bits, as by MixedPrecisionPolicy(torch.bfloat16), and {MIN_VALUES:,} weights per rank"
    return f"zip ({needs})" if others == values else f"delta, and {others:,} values by zip ({needs})"


def _figures(tally: Tally, world: int) -> dict[str, int]:
    return {
        "rounds": tally.rounds,
        "bytes": tally.bytes_handed_over,
        "bytes_sent": tally.bytes_sent,
        "dense_bytes": tally.bytes_handed_over * (world - 1) // world,
        "waited_ns": tally.waited_ns,
    }
