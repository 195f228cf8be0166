# SPDX-License-Identifier: Apache-2.0
"""The communication hook: State, its running session, and the threads that move a bucket."""
