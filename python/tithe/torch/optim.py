# SPDX-License-Identifier: Apache-2.0
"""Optimizers that know what a codec does to gradients (docs/guide/optimizers.md)."""

from tithe.torch._optimizer.adamw import AdamW

__all__ = ["AdamW"]
