# SPDX-License-Identifier: Apache-2.0
"""States of ranks that hold a part of each parameter: FSDP2, and shares inside hosts."""
