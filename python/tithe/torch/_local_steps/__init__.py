# SPDX-License-Identifier: Apache-2.0
"""LocalSteps: ranks train alone and exchange the change of their parameters."""
