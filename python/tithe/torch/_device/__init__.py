# SPDX-License-Identifier: Apache-2.0
"""Buckets on an accelerator: pinned memory, streams and events."""
