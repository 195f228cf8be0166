# SPDX-License-Identifier: Apache-2.0
"""Shared by all packages of tithe.torch: checks, parameter keys, memory layout, states by rank."""
