# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: the model, the optimizer and the residuals of all ranks in files."""
