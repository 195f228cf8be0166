# SPDX-License-Identifier: Apache-2.0
"""Hosts with one name, and with an interface that has one address on both."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "lab/hosts"))

from hosts import unshare_command  # noqa: E402

JOBS = Path(__file__).with_name("address_jobs.py")


@pytest.fixture(scope="module")
def seen():
    """Returns, by job, the results of each rank."""
    try:
        command = unshare_command()
    except RuntimeError as why:
        pytest.skip(f"no private namespaces here: {why}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UCX_")}
    environment["PYTHONPATH"] = str(ROOT / "python")
    done = subprocess.run(
        [*command, sys.executable, str(JOBS), "hosts"], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("job", ["tcp", "tcp by IPv6 in brackets", "ucx by a device", "ucx by the variable"])
def test_named_network_is_used(seen, job):
    assert seen[job] == [{"mean": 0.5}] * 2


def test_ucx_error_lists_the_interfaces(seen):
    texts = [rank["text"] for rank in seen["ucx"]]
    assert any("172.17.0.1 (docker0)" in t and "10.77.0." in t and "UCX_NET_DEVICES=eth0" in t for t in texts), texts


def test_tcp_error_names_the_addresses(seen):
    assert any("172.17.0.1" in rank["text"] for rank in seen["tcp by the wrong network"])


def test_tcp_error_mentions_the_loopback(seen):
    for rank in seen["tcp by the loopback"]:
        assert rank["code"] in ("invalid", "peer_lost", "io") and "contains no address" not in rank["text"], rank
        assert "contains only loopback" in rank["text"] and "10.77.0." in rank["text"], rank
