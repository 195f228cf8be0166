# SPDX-License-Identifier: Apache-2.0
"""The key of each parameter, under which the session stores its residual."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from tithe import _core
from tithe._exchange import error
from tithe.torch._common.rank_states import unlabelled
from tithe.torch._common.state_fit import NAMES_CURE, SavedParameter, memory_order, other_format, same_order

NO_WALK = -1  # torch's number for "no backward pass"
_SHARED = ("strategy", "choices", "link", "hosts", "servers", "schedule", "average", "min_values", "part_values",
           "seed", "run")  # fmt: skip
_SAMPLE = 1024  # values of a parameter that its fingerprint covers


def fingerprint(parameter: torch.Tensor) -> str:
    """Returns a hash of values spread over the parameter. It differs between the parameters of a trained model."""
    flat = parameter.detach().reshape(-1)
    sample = flat[:: max(1, flat.numel() // _SAMPLE)].contiguous().cpu()
    return hashlib.blake2b(sample.view(torch.uint8).numpy().tobytes(), digest_size=8).hexdigest()


def describe(parameter: torch.Tensor) -> dict[str, Any]:
    return {
        "shape": list(parameter.shape),
        "dtype": str(parameter.dtype),
        "print": fingerprint(parameter),
        "order": memory_order(parameter),
    }


def other_values(saved: Mapping[str, Any], model: torch.nn.Module) -> str | None:
    """Returns the first parameter of a saved state whose values differ in a DDP model; None if all are equal.

    A parameter that the model lacks does not count, unless the model lacks all of them.
    """
    now = dict(by_name(model.module.named_parameters()).values())
    entries = unlabelled(saved)["parameters"]
    both = {name: entry for name, entry in entries.items() if name in now}
    for name, entry in (both or entries).items():
        if name not in now or entry["print"] != fingerprint(now[name]):
            return name
    return None


def by_name(parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> dict[int, tuple[str, torch.nn.Parameter]]:
    """Returns the pairs by the parameter's id. Names are those of the model without torch.compile()'s `_orig_mod.`."""
    names = {id(p): (name.replace("_orig_mod.", ""), p) for name, p in parameters}
    for name, count in Counter(name for name, _ in names.values()).items():
        if count > 1:
            raise ValueError(
                f"{count} parameters have the name '{name}': give each its own, and each model its own State"
            )
    return names


def shared_options(options: _core.Options) -> dict[str, Any]:
    """Returns the options that must be the same on all ranks. The codec is first, because others often follow from
    it."""
    codec = options.codec if _core.is_auto(options.codec) else _core.check_codec(options.codec)
    return {"codec": codec, **{name: getattr(options, name) for name in _SHARED}}


def check_alike(
    names: Mapping[int, tuple[str, torch.Tensor]],
    all_gather: Callable[[bytes], list[bytes]],
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Raises tithe.Error on all ranks if a rank's names, shapes, types or settings differ from those of rank 0.

    settings: values that JSON can hold.
    """
    mine = [[name, list(p.shape), str(p.dtype).removeprefix("torch.")] for name, p in names.values()]
    text = json.dumps([settings or {}, mine]).encode()
    if len(set(all_gather(hashlib.blake2b(text, digest_size=16).digest()))) == 1:
        return
    # Gathered only after a mismatch, since the lists may be long
    of_ranks = [json.loads(blob) for blob in all_gather(text)]
    rank = next(r for r, theirs in enumerate(of_ranks) if theirs != of_ranks[0])
    (set_first, first), (set_theirs, theirs) = of_ranks[0], of_ranks[rank]
    if other := next((name for name, value in set_first.items() if set_theirs[name] != value), None):
        raise error(
            "mismatch",
            rank,
            f"{other}={set_first[other]!r} on rank 0 and {other}={set_theirs[other]!r} on rank {rank}: give all ranks "
            "the same options",
        )
    if not first or not theirs:
        without = rank if first else 0
        raise error("mismatch", rank, f"rank {without} does not know its parameters' names, others do: {NAMES_CURE}")
    at = next((i for i, (a, b) in enumerate(zip(first, theirs, strict=False)) if a != b), min(len(first), len(theirs)))
    raise error(
        "mismatch",
        rank,
        f"parameter {at} is {_entry(first, at)} on rank 0 and {_entry(theirs, at)} on rank {rank}: "
        "build the same model, in the same order, on all ranks",
    )


def _entry(listed: Sequence[Any], at: int) -> str:
    if at >= len(listed):
        return "missing"
    name, shape, dtype = listed[at]
    return f"'{name}' {tuple(shape)} {dtype}"


def check_order(saved: Mapping[str, SavedParameter], names: Mapping[int, Any], may_be_named: bool = False) -> None:
    """Raises ValueError if a State without names cannot distinguish two parameters of a saved state.

    may_be_named: the State may still get names from the model that registers it. Then only a saved state without names
    is refused here.
    """
    if names or (may_be_named and not any(key.startswith("#") for key in saved)):
        return
    alike = Counter((tuple(e["shape"]), e["dtype"], e["print"]) for e in saved.values())
    twins = [key for key, e in saved.items() if alike[tuple(e["shape"]), e["dtype"], e["print"]] > 1]
    if twins:
        raise ValueError(
            f"the saved state knows parameters by their order alone, and {', '.join(twins[:4])} looked alike when it "
            f"was saved, so that another order would go unnoticed: {NAMES_CURE}"
        )


class ParameterKeys:
    """Keys by name if the names are known, else by the order in which DDP first hands the parameters over."""

    def __init__(
        self, names: Mapping[int, tuple[str, torch.nn.Parameter]], saved: Mapping[str, SavedParameter]
    ) -> None:
        self.names = names  # by id
        self.saved = saved  # the parameters of the loaded state, by key; empty if no state was loaded
        self.known: dict[int, tuple[str, torch.nn.Parameter]] = {}  # by id, in the order of their first bucket
        self.whole = False  # whether a step is over; after that all parameters of the model are known
        self.step: set[int] = set()  # ids of the parameters in the open step's buckets
        self.places: set[int] = set()  # numbers of the open step's buckets
        self.walk = NO_WALK  # the backward pass of the last complete step
        self.orders = {number: memory_order(p) for number, (_, p) in names.items()}  # by id

    def begin(self, place: int, parameters: Sequence[torch.Tensor], walk: int) -> bool:
        """Records a bucket. Returns True if an earlier step was abandoned before its last bucket.

        ValueError if two models share the State and their backward passes interleave.
        """
        ids = {id(p) for p in parameters}
        again = not self.step.isdisjoint(ids)
        if (not again and place in self.places) or (not self.step and walk == self.walk != NO_WALK):
            raise ValueError(two_models("their backward passes interleave"))
        self.step |= ids
        self.places.add(place)
        return again

    def end(self, walk: int) -> None:
        """Records the end of a step. A backward pass has one step of a model: DDP waits for it at the pass's end."""
        self.step, self.places = set(), set()
        self.walk = walk
        self.whole = True

    def unseen(self) -> list[str]:
        """Returns the keys of the trained parameters that no bucket of the open step contained."""
        table = self.known if self.whole else self.known | self.names
        return [key for number, (key, p) in table.items() if number not in self.step and p.requires_grad]

    def of(self, parameter: torch.nn.Parameter) -> str:
        """Returns the key of a parameter in a bucket; a new parameter gets a key."""
        if id(parameter) in self.known:
            return self.known[id(parameter)][0]
        if self.names:
            if id(parameter) not in self.names:
                raise ValueError(two_models("a parameter is not a parameter of this State"))
            key = self.names[id(parameter)][0]
        elif self.whole:
            raise ValueError(two_models("a parameter was not there in the first step"))
        else:
            place = len(self.known)
            key = list(self.saved)[place] if place < len(self.saved) else f"#{place}"
        if self.saved and not self.names:
            self._check_saved(key, parameter)
        self.known[id(parameter)] = (key, parameter)
        return key

    def check_orders(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Raises ValueError if a parameter's memory format has changed: its gradient would not match its residual."""
        for p in parameters:
            now = memory_order(p)
            if self.orders.setdefault(id(p), now) != now:
                raise ValueError(
                    f"parameter '{self.of(p)}' has another memory format than when its gradients were first taken: "
                    "convert the model before DistributedDataParallel(model)"
                )

    def find(self, parameter: torch.nn.Parameter) -> str:
        """Returns the key of a parameter that is known already."""
        for table in (self.known, self.names):
            if id(parameter) in table:
                return table[id(parameter)][0]
        raise ValueError("this State has not seen the parameter: its first step is still to come, or it is another's")

    def _check_saved(self, key: str, parameter: torch.nn.Parameter) -> None:
        """Identifies a parameter without a name by its values. check_parameters() has checked the named parameters."""
        entry = self.saved.get(key)
        if entry is None or list(entry["shape"]) != list(parameter.shape):
            have = "no values" if entry is None else f"the shape {tuple(entry['shape'])}"
            raise ValueError(
                f"the loaded state has {have} of parameter '{key}', the model has {tuple(parameter.shape)}: "
                "load the state that was saved with this model"
            )
        if (entry["dtype"], entry["print"]) != (str(parameter.dtype), fingerprint(parameter)):
            raise ValueError(
                f"parameter '{key}', of shape {tuple(parameter.shape)}, is not the one that stood in this place when "
                "the state was saved, or has other values: without names the state is told apart by order and values. "
                f"Load the model's own state of the same step before the first step, or {NAMES_CURE}"
            )
        if not same_order(entry, parameter):
            raise ValueError(other_format(f"'{key}'"))

    def table(self) -> dict[str, dict[str, Any]]:
        """Returns the table for a saved state: the known parameters, and the loaded ones that do not train now."""
        now = {key: describe(p) for key, p in self.known.values()}
        return now | {key: dict(e) for key, e in self.saved.items() if key not in now}


def two_models(why: str) -> str:
    return (
        f"this State belongs to another model ({why}): give each model a State of its own, by tithe.torch.attach() or "
        "register_comm_hook(State(parameters=model.named_parameters()), hook)"
    )
