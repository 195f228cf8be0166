# SPDX-License-Identifier: Apache-2.0
"""How codecs do under optimizers (docs/start/choosing.md). Written by tools/lint/choosing.py --write."""

_COLUMNS = ("SGD 0.5, tuned rate", "SGD 0.9", "AdamW", "tithe's AdamW", "Muon with AdamW")
_ROWS = {
    "bf16": ("yes", "yes", "yes", "", ""),
    "dgc": ("", "no: 0.18 nats (transformer)", "no: 0.30 nats (transformer)", "", ""),
    "dgc:feedback=momentum": ("yes", "no: 0.16 nats (transformer)", "", "", ""),
    "dragonn": ("yes", "no: 0.36 nats (transformer)", "no: 0.34 nats (transformer)", "", ""),
    "eden": ("yes", "yes", "yes", "yes", ""),
    "eden:bits=1": (
        "yes",
        "no: 0.12 nats (transformer)",
        "no: 0.07 nats (transformer)",
        "no: 0.07 nats (transformer)",
        "",
    ),
    "eden:bits=2": ("yes", "yes", "no: 0.03 nats (transformer)", "yes", ""),
    "eden:bits=3": ("yes", "yes", "yes", "yes", ""),
    "eden:scale=unbiased,feedback=none": ("", "yes", "yes", "", "no: 0.5 points (convnet)"),
    "fft": ("yes", "no: 0.13 nats (transformer)", "no: 0.14 nats (transformer)", "", ""),
    "fp16": ("yes", "yes", "yes", "", ""),
    "fp8": ("yes", "yes", "yes", "yes", "yes"),
    "fp8_shared": ("yes", "yes", "yes", "", ""),
    "inceptionn": ("yes", "yes", "no: 0.01 nats (transformer)", "", ""),
    "minmax": ("yes", "yes", "no: 0.29 nats (transformer)", "no: 0.06 nats (transformer)", ""),
    "natural": ("yes", "yes", "yes", "", ""),
    "nuqsgd": ("yes", "yes", "no: 0.01 nats (transformer)", "yes", ""),
    "onebit": ("yes", "no: diverged", "no: 0.33 nats (transformer)", "no: 0.21 nats (transformer)", ""),
    "powersgd": ("yes", "no: 0.01 nats (transformer)", "no: 0.03 nats (transformer)", "", ""),
    "qsgd": ("yes", "yes", "no: 0.02 nats (transformer)", "", ""),
    "qsgd_shared": ("yes", "yes", "no: 0.02 nats (transformer)", "", ""),
    "qtopk": ("yes", "no: 0.09 nats (transformer)", "no: 0.18 nats (transformer)", "no: 0.43 nats (transformer)", ""),
    "rangefloat": ("yes", "yes", "yes", "", ""),
    "sign_majority": ("yes", "no: 0.17 nats (transformer)", "no: 0.22 nats (transformer)", "", ""),
    "thc": ("yes", "yes", "nearly: 0.25 points (convnet)", "", ""),
    "topk": ("yes", "no: 0.18 nats (transformer)", "no: 0.30 nats (transformer)", "", ""),
}
STUDIED = {c: {k: v for k, v in zip(_COLUMNS, row, strict=True) if v} for c, row in _ROWS.items()}
DEFAULTS = {
    "SGD 0.5, tuned rate": "eden:bits=3",
    "SGD 0.9": "eden:bits=3",
    "tithe's AdamW": "eden:bits=3",
}
OWN = "tithe's AdamW"
