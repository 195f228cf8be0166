# SPDX-License-Identifier: Apache-2.0
"""How codecs do under optimizers (docs/choosing.md). Written by tools/lint/choosing.py --write."""

STUDIED = {
    "bf16": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "yes",
    },
    "dgc": {
        "SGD 0.9": "no: 0.18 nats (transformer)",
        "AdamW": "no: 0.30 nats (transformer)",
    },
    "dgc:feedback=momentum": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "no: 0.16 nats (transformer)",
    },
    "dragonn": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "no: 0.36 nats (transformer)",
        "AdamW": "no: 0.34 nats (transformer)",
    },
    "eden": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "yes",
        "tithe's AdamW": "yes",
    },
    "eden:bits=1": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "no: 0.12 nats (transformer)",
        "AdamW": "no: 0.07 nats (transformer)",
        "tithe's AdamW": "no: 0.07 nats (transformer)",
    },
    "eden:bits=2": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "no: 0.03 nats (transformer)",
        "tithe's AdamW": "yes",
    },
    "eden:bits=3": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "yes",
        "tithe's AdamW": "yes",
    },
    "fft": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "no: 0.13 nats (transformer)",
        "AdamW": "no: 0.14 nats (transformer)",
    },
    "fp16": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "yes",
    },
    "fp8": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "yes",
        "tithe's AdamW": "yes",
    },
    "fp8_shared": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "yes",
    },
    "inceptionn": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "no: 0.01 nats (transformer)",
    },
    "minmax": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "no: 0.29 nats (transformer)",
        "tithe's AdamW": "no: 0.06 nats (transformer)",
    },
    "natural": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "yes",
    },
    "nuqsgd": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "no: 0.01 nats (transformer)",
        "tithe's AdamW": "yes",
    },
    "onebit": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "no: diverged",
        "AdamW": "no: 0.33 nats (transformer)",
        "tithe's AdamW": "no: 0.21 nats (transformer)",
    },
    "powersgd": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "no: 0.01 nats (transformer)",
        "AdamW": "no: 0.03 nats (transformer)",
    },
    "qsgd": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "no: 0.02 nats (transformer)",
    },
    "qsgd_shared": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "no: 0.02 nats (transformer)",
    },
    "qtopk": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "no: 1.3 points (mlp)",
        "AdamW": "no: 0.18 nats (transformer)",
        "tithe's AdamW": "no: 0.43 nats (transformer)",
    },
    "rangefloat": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "yes",
    },
    "sign_majority": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "no: 0.17 nats (transformer)",
        "AdamW": "no: 0.22 nats (transformer)",
    },
    "thc": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "yes",
        "AdamW": "nearly: 0.25 points (convnet)",
    },
    "topk": {
        "SGD 0.5, tuned rate": "yes",
        "SGD 0.9": "no: 0.18 nats (transformer)",
        "AdamW": "no: 0.30 nats (transformer)",
    },
}
DEFAULTS = {
    "SGD 0.5, tuned rate": "eden:bits=3",
    "SGD 0.9": "eden:bits=3",
    "tithe's AdamW": "eden:bits=3",
}
OWN = "tithe's AdamW"
