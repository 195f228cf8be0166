# SPDX-License-Identifier: Apache-2.0
"""A few cells of `make chaos-members`, and its table for failed cells."""

import concurrent.futures
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests" / "chaos" / "hosts"), str(ROOT / "lab/hosts")]

import members  # noqa: E402

from hosts import unshare_command  # noqa: E402

MEMBER = ROOT / "build" / "tests" / "chaos_member"
CELLS = [
    ("kill", "encode", "two", "ring", "tcp:trust=10.77.0.0/24"),
    ("return", "exchange", "rank 0", "server", "ucx:transports=tcp"),
    ("kill", "connect", "last of a host", "gather", "tcp:trust=10.77.0.0/24"),
]
# Without this rank no job begins; a UCX reconnection may block for two minutes.
CUT_OFF = ("cut", "meet", "one", "server", "ucx:transports=tcp")


def test_members_are_killed_and_join(tmp_path):
    if not MEMBER.exists():
        pytest.skip(f"no {MEMBER}: cmake --build build --target chaos_member")
    try:
        unshare_command()
    except RuntimeError as why:
        pytest.skip(f"no private namespaces here: {why}")
    with concurrent.futures.ThreadPoolExecutor(len(CELLS) + 1) as pool:
        *results, cut = pool.map(lambda cell: members.in_namespaces(cell, str(MEMBER)), [*CELLS, CUT_OFF])
    assert not members.is_bad(cut), cut
    assert not any(map(members.is_bad, results)), results
    assert [r["came_back"] for r in results] == [[], [True], []], results
    assert all(r["balanced"] > 4 and r["next_round"] for r in results), results


def line(step, epoch, names, put, had, kept, result, lost):
    numbers = [float(v).hex() for v in (put, had, kept, result)]
    text = "step {} {} {} put {} had {} kept {} result {} hash 77 lost {}"
    return text.format(step, epoch, names, *numbers, lost)


def test_ledger_is_summed():
    first = members.Step(1.0, line(0, 0, "ann,bob,cay", 4, 0, 1, 9, 0))
    assert (first.number, first.epoch, first.members, first.kept) == (0, 0, ("ann", "bob", "cay"), 1)
    good = members.Step(2.0, line(1, 1, "ann,cay", 4, 1, 2, 9, 1))
    assert members.unkept([first, good]) == []
    changed = members.Step(2.0, line(1, 1, "ann,cay", 4, 0, 2, 9, 1))
    assert members.unkept([first, changed]) == ["step 1: the residual was 1.0 and is 0.0"]
    uncounted = members.Step(2.0, line(1, 1, "ann,cay", 4, 1, 2, 9, 0))
    assert members.unkept([first, uncounted]) == ["step 1: 1 were lost, 0 are counted"]
    assert members.unkept([first, good, members.Step(3.0, line(2, 3, "ann,cay", 4, 2, 0, 9, 2))], anew=1) == []
    cell = {"cell": CELLS[0], "hung": [], "mismatches": [], "equal": True, "went_on": [True], "came_back": []}
    assert not members.is_bad(cell)
    for wrong in ({"hung": [2]}, {"mismatches": ["x"]}, {"equal": False}, {"went_on": [False]}, {"broken": "x"}):
        assert members.is_bad(cell | wrong), wrong
