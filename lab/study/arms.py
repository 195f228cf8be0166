# SPDX-License-Identifier: Apache-2.0
"""The arms of the study of AdamW, in parts that can be run separately. An arm is an optimizer and a codec. It is
compared with its reference, the plain optimizer with fp32, seed by seed."""

import dataclasses
from dataclasses import dataclass

from lab.study import variances
from lab.study.cells import TIED, Cell

SHAPES = {"bytes": (2, 1000), "convnet": (8, 1000), "words": (16, 4000), "large": (2, 2000)}  # batch per rank, steps
RATES = {  # the rates that suit fp32: `PARTS=rates make study-adam`
    ("bytes", "AdamW"): 4e-3,
    ("bytes", "SGD 0.9"): 0.3,
    ("bytes", "Nesterov 0.9"): 0.3,
    ("convnet", "AdamW"): 4e-3,
    ("convnet", "SGD 0.9"): 0.05,
    ("convnet", "Nesterov 0.9"): 0.05,
    ("words", "AdamW"): 4e-3,
    ("words", "SGD 0.9"): 1.0,
    ("large", "AdamW"): 1e-3,
}
FACTORS = (1 / 2, 1, 2, 4)  # of a rate, if an arm is tuned
FINER = (0.7, 1, 1.4)  # of the best of FACTORS
TUNED_ON = (100, 101)  # seeds that no comparison uses; the first for FACTORS, both for FINER


@dataclass(frozen=True)
class Arm:
    """An optimizer and a codec. control: an arm that must be worse; otherwise the study cannot detect a loss."""

    model: str
    optimizer: str
    codec: str
    factor: float = 1  # of the rate that suits fp32
    control: bool = False

    @property
    def cell(self) -> Cell:
        rate = RATES[self.model, base(self.optimizer)] * self.factor
        return Cell(self.model, self.optimizer, rate, *SHAPES[self.model])

    def part(self, share: float) -> Cell:
        """Returns the cell with this share of the steps."""
        return dataclasses.replace(self.cell, steps=max(1, round(share * self.cell.steps)))

    @property
    def name(self) -> str:
        return f"{self.model}, {self.optimizer}, {self.codec}, {self.factor:g}"

    def at(self, factor: float) -> "Arm":
        return dataclasses.replace(self, factor=factor)

    def reference(self) -> "Arm":
        return Arm(self.model, base(self.optimizer), "fp32")


def base(optimizer: str) -> str:
    """Returns the optimizer without tithe, as users write it."""
    return "AdamW" if "AdamW" in optimizer else optimizer


def arms(model: str, optimizer: str, *codecs: str) -> list[Arm]:
    return [Arm(model, optimizer, codec) for codec in codecs]


def controls(model: str) -> list[Arm]:
    sparse = Arm(model, "AdamW", "topk:ratio=0.01", control=True)
    return [sparse, Arm(model, "AdamW", "fp32", factor=1 / 2, control=True)]


FEW = "feedback=momentum,mask=off"  # the settings that attach(optimizer=SGD) makes for codecs that need them
SMALL = "< 4096: fp8 in a group"
THREE = "first 0.1: eden:bits=3; "
FEWEST = f"eden:bits=1.6 in a group; first 0.08: eden; {SMALL}"  # 16 times fewer bytes than fp32
LATE = f"eden:bits=1 in a group; first 0.4: eden:bits=3; {SMALL}"  # the same number of bytes, most of them early
UNBIASED = "eden:scale=unbiased,feedback=none"
EARLY = f"eden:bits=1 in a group; first 0.4: eden:bits=3,scale=unbiased,feedback=none; {SMALL}"
FEWEST_SGD = f"eden:bits=1.6 in a group; {SMALL}"  # the same number of bytes without exact steps
MIXED = {  # 2 bits, 1 for at least a third of the values, small tensors compressed: 16 times fewer bytes than fp32
    "bytes": f"eden:bits=2; *.wide.weight: eden:bits=1; {SMALL}",
    "convnet": f"eden:bits=2; >= 50000: eden:bits=1; {SMALL}",
    "words": f"eden:bits=2; words.*: eden:bits=1; {SMALL}",
}
PARTS = {
    "adamw": [
        *arms("bytes", "AdamW", "fp32", "eden", "eden:bits=2", UNBIASED),
        *arms("bytes", TIED, "eden:bits=3", "eden:bits=2", FEWEST, LATE, MIXED["bytes"], "eden:bits=1"),
        *controls("bytes"),
    ],
    "sgd": arms(
        "bytes", "SGD 0.9", "fp32", UNBIASED, "eden:bits=3", "eden:bits=2", FEWEST_SGD, LATE, EARLY, "eden:bits=1"
    ),
    "convnet": [
        *arms("convnet", "AdamW", "fp32", "eden", "eden:bits=2", UNBIASED),
        *arms("convnet", TIED, "eden:bits=3", "eden:bits=2", FEWEST, LATE, MIXED["convnet"], "eden:bits=1"),
        *controls("convnet"),
        *arms(
            "convnet", "SGD 0.9", "fp32", UNBIASED, "eden:bits=3", "eden:bits=2", FEWEST_SGD, LATE, EARLY, "eden:bits=1"
        ),
        *arms("convnet", "Nesterov 0.9", "fp32", "eden:bits=2", FEWEST_SGD, "eden:bits=1"),
    ],
    "words": [
        *arms("words", "AdamW", "fp32", "eden", "eden:bits=2", UNBIASED),
        *arms("words", TIED, "eden:bits=3", "eden:bits=2", FEWEST, LATE, MIXED["words"], "eden:bits=1"),
        *controls("words"),
        *arms(
            "words", "SGD 0.9", "fp32", UNBIASED, "eden:bits=3", "eden:bits=2", FEWEST_SGD, LATE, EARLY, "eden:bits=1"
        ),
    ],
    "variances": [
        arm
        for model in ("convnet", "words", "bytes")
        for optimizer in variances.RULES
        for arm in arms(model, optimizer, "fp32", "eden:bits=2")
    ],
    "local": [
        arm
        for model in ("convnet", "bytes", "words")
        for arm in arms(model, "AdamW local", "eden:bits=2", MIXED[model], "eden:bits=1", "fp32")
    ],
    "more": [
        *arms("bytes", "AdamW", "fp8", "eden:bits=3", "eden:bits=1", "nuqsgd", "minmax"),
        *arms("bytes", TIED, "eden", "minmax", "onebit", "qtopk"),
        *arms("bytes", "SGD 0.9", "onebit", f"onebit:{FEW}", "topk", f"topk:{FEW}", f"eden:bits=1,{FEW}"),
        *arms("bytes", "Nesterov 0.9", "fp32", "eden:bits=2"),
        *arms("convnet", "SGD 0.9", "onebit", f"onebit:{FEW}"),
    ],
    "first": [  # the gain of first steps by another codec
        *arms("bytes", TIED, "eden:bits=1.6"),
        *(Arm(m, TIED, f"eden:bits=1.6; {more}{SMALL}") for m in SHAPES if m != "large" for more in ("", THREE)),
    ],
    "large": [
        *arms("large", "AdamW", "fp32", "eden", UNBIASED),
        *arms("large", TIED, "eden:bits=3", "eden:bits=2", FEWEST, MIXED["bytes"]),
    ],
}


def all_arms() -> list[Arm]:
    return list(dict.fromkeys(arm for part in PARTS.values() for arm in part))
