# SPDX-License-Identifier: Apache-2.0
"""Session.reduce_scatter and Session.all_gather."""

import concurrent.futures
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tithe


def on_all(world: int, work: Callable[[tithe.Session], Any], **options: Any) -> list[Any]:
    ranks = tithe.Session.loop(world, timeout=20.0, **options)
    with concurrent.futures.ThreadPoolExecutor(world) as pool:
        results = list(pool.map(work, ranks))
    for session in ranks:
        session.close()
    return results


def test_ranges_of_any_size() -> None:
    def work(session: tithe.Session) -> tuple[np.ndarray, np.ndarray]:
        bounds = {"w": [0, 3, 3, 10]}
        w = np.arange(10, dtype=np.float32) + 10 * session.rank
        session.wait(session.reduce_scatter({"w": w}, bounds=bounds))
        session.commit()
        g = np.full((5, 2), session.rank, np.float32)
        session.wait(session.all_gather({"g": g}))
        session.commit()
        return w, g

    for rank, (w, g) in enumerate(on_all(3, work, codec="fp32")):
        first, end = [0, 3, 3, 10][rank : rank + 2]
        want = np.arange(10, dtype=np.float32) + 10 * rank
        want[first:end] = np.arange(first, end) + 10
        np.testing.assert_array_equal(w, want)
        np.testing.assert_array_equal(g[:, 0], [0, 0, 1, 1, 2], err_msg="whole rows, as torch.chunk cuts them")


def test_all_ranks_gather_the_same_bits() -> None:
    def work(session: tithe.Session) -> np.ndarray:
        w = np.random.default_rng(session.rank).standard_normal(5000).astype(np.float32)
        session.wait(session.all_gather({"w": w}))
        session.commit()
        return w

    first, *others = on_all(3, work, codec="eden:bits=4")
    for w in others:
        np.testing.assert_array_equal(w, first)


def test_invalid_calls_are_refused() -> None:
    session = tithe.Session.loop(1, codec="fp32")[0]
    w = np.ones(4, np.float32)
    with pytest.raises(ValueError, match="tensor 'w' has 3 bounds: 1 ranks need 2 bounds, from 0 to 4"):
        session.reduce_scatter({"w": w}, bounds={"w": [0, 2, 4]})
    with pytest.raises(ValueError, match="bounds has an entry for 'v', which is not among the tensors"):
        session.all_gather({"w": w}, bounds={"v": [0, 4]})
    with pytest.raises(ValueError, match="bounds of 'w' are .-1, 4.: an offset must not be negative"):
        session.all_gather({"w": w}, bounds={"w": [-1, 4]})
    with pytest.raises(TypeError):
        session.all_gather({"w": w}, bounds={"w": [0, 4.0]})  # type: ignore[list-item]
    session.close()
