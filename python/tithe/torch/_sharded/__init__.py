# SPDX-License-Identifier: Apache-2.0
"""Models that are sharded over all ranks: the collectives of FSDP2, run by tithe."""
