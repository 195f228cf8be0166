# SPDX-License-Identifier: Apache-2.0
"""The text of a timeout names the option that extends it."""

import numpy as np
import pytest

import tithe


def test_responsive_rank_without_contribution_exceeds_patience():
    waits, idle = tithe.Session.loop(2, codec="fp32", timeout=1.0, patience=1.0, lanes=1)
    with pytest.raises(tithe.Error) as failed:
        waits.wait(waits.sync({"w": np.ones(5000, "f4")}))
    assert (failed.value.code, failed.value.peer) == ("timeout", 1)
    assert "raise patience" in str(failed.value) and "raise timeout" not in str(failed.value)
    waits.close()
    idle.close()


def test_absent_ranks_exceed_the_timeout(monkeypatch, tmp_path):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "TITHE_FILE": str(tmp_path / "meet")}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(tithe.Error) as failed:
        tithe.Session.from_environment(codec="fp32", transport="tcp", timeout=1.0)
    assert (failed.value.code, failed.value.peer) == ("timeout", 1)
    assert str(failed.value).count("raise timeout") == 1
