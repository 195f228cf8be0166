# SPDX-License-Identifier: Apache-2.0
"""Rules for the matrices of Muon, the settings that tithe.torch.optim.Muon refuses, and codecs that do not suit
Muon."""

from collections.abc import Sequence
from typing import Any

import torch

from tithe import _core
from tithe._choices import is_lossless
from tithe.torch._common.checks import some
from tithe.torch._hook.adapter import parameters_of
from tithe.torch._hook.parameter_views import ParameterViews

MUON = "Muon"
GRADIENTS = "eden:bits=4,scale=unbiased,feedback=none"
UPDATES = "eden:bits=2,scale=unbiased,feedback=none"
GRADIENT, UPDATE = " (gradient)", " (update)"  # suffixes of a matrix's name: the keys of its gradient and of its update
OTHERS = "Muon (*"  # the pattern of the keys of small tensors
_EXACT = "bf16"  # loses nothing of updates, which are bfloat16
_COARSE = ("onebit", "sign", "sign_majority", "tbq", "terngrad", "terngrad_shared", "minmax")
_COARSE_EDEN = ("eden:bits=1", "eden:bits=2")  # prefixes, so bits=1.6 matches too
_SPARSE = ("topk", "qtopk", "dgc", "dragonn", "randomk", "threshold", "graddrop", "scalecom", "fft")

_TORCHS: Any = getattr(torch.optim, "Muon", ())  # exists since torch 2.9

if _TORCHS:
    from tithe.torch._optimizer.muon import Muon as OwnMuon
else:

    class OwnMuon:  # type: ignore[no-redef]
        """Replaces tithe's Muon if torch has none."""


def is_muon(optimizer: Any) -> bool:
    return isinstance(optimizer, _TORCHS)


def muon_rules(
    optimizers: Sequence[torch.optim.Optimizer],
    views: ParameterViews,
    codec: str,
    choices: str,
    codec_given: bool,
    owned: bool,
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the rules before and after the State's choices. owned: whether tithe.torch.optim.Muon divides its
    matrices.

    Gradients: a codec or a rule of the user has priority. Updates: a rule whose pattern has "(update)" has priority,
    and rules for gradients do not apply to them. If the user named a lossless codec, updates are sent without loss too.
    """
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for each in filter(is_muon, optimizers):
        divided = owned and isinstance(each, OwnMuon)
        if divided:
            exact = codec_given and (is_lossless(codec) or codec == _EXACT)
            (after if UPDATE.strip() in choices else before)[f"*{UPDATE}"] = _EXACT if exact else UPDATES
            before[OTHERS] = "fp32"
        if codec_given:
            continue
        mine = {id(p) for p in parameters_of(each)}
        names = [name for number, (name, p) in views.names.items() if number in mine and p.requires_grad]
        after |= {f"*{GRADIENT}": GRADIENTS} if divided else dict.fromkeys(names, _core.Options().codec)
    return before, after


def check_settings(options: _core.Options, views: ParameterViews) -> None:
    """ValueError, by name, for settings under which matrices cannot be divided among the ranks."""
    own = "tithe.torch.optim.Muon"
    cure = "take torch.optim.Muon, or leave it out"
    if views.part:
        raise ValueError(f"{own} divides whole matrices among all ranks, and {views.part} divides them already: {cure}")
    if _core.is_auto(options.codec):
        raise ValueError(
            f"codec={options.codec!r} plans all-reduces, and {own} has reduce-scatters and all-gathers: name a codec, "
            "or take torch.optim.Muon"
        )
    wrong = {
        "device='on'": options.device != "off",
        f"servers={options.servers}": options.servers > 0,
        f"schedule={options.schedule!r}": options.schedule != "none",  # a schedule follows rounds, and a step has two
        f"stragglers={options.stragglers!r}": "without=" in options.stragglers,
    }
    for text, given in wrong.items():
        if given:
            raise ValueError(f"{own} does not work with {text}: {cure}")
    name = _core.check_codec(options.codec).partition(":")[0]
    if any(each["name"] == name and len(each["phases"]) > 1 for each in _core.codecs()):
        names = [key for key, _ in views.names.values()]
        raise ValueError(
            f"codec {options.codec!r} needs all ranks for each tensor, and the gradients of {own}'s matrices go to one "
            f"rank: leave codec= out for {GRADIENTS!r}, and name {name!r} in choices= for other parameters "
            f"(the model has {some(names)})"
        )


def muon_objection(codec: str) -> str:
    """Returns the reason why a codec of gradients does not suit Muon; "" if it does (lab/results/muon.md)."""
    spec = _core.check_codec(codec)
    name = spec.partition(":")[0]
    if name in _SPARSE:
        return "no: Newton-Schulz amplifies the error of values that wait"
    return "no: Newton-Schulz amplifies its error" if name in _COARSE or spec.startswith(_COARSE_EDEN) else ""
