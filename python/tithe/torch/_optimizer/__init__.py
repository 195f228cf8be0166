# SPDX-License-Identifier: Apache-2.0
"""Optimizers that need more than the mean gradient: AdamW, clipping, exact steps."""
