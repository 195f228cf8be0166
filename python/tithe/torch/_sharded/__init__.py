# SPDX-License-Identifier: Apache-2.0
"""Models whose parameters are divided among ranks: FSDP2, and shares inside hosts."""
