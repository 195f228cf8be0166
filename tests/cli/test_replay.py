# SPDX-License-Identifier: Apache-2.0
"""tithe replay: a model's steps between real processes, its refusals, and the processes and files that remain."""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))
TINY = {
    "model": "tiny",
    "forward_ms": 4,
    "tensors": [
        {"name": "head.bias", "values": 1000, "row": 1000, "ready_ms": 1},
        {"name": "head.weight", "values": 400000, "row": 400, "ready_ms": 2},
        {"name": "embedding.weight", "values": 800000, "row": 400, "ready_ms": 8},
    ],
}


def command(line):
    return [TITHE, "replay", *shlex.split(line)]


def run(line, folder, **options):
    return subprocess.run(
        command(line), cwd=folder, capture_output=True, text=True, timeout=300, check=False, **options
    )


def report(line, folder):
    done = run(f"{line} --json", folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    return tmp_path


def hosts_refused():
    """Returns the reason why this system has no emulated hosts; "" if it has."""
    done = run("--model hdc:scale=0.01 --ranks 1 --steps 1 --link 1Gb/s", ROOT)
    assert done.returncode in (0, 1)
    if done.returncode:
        assert "--link none" in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def hosts():
    if why := hosts_refused():
        pytest.skip(f"no emulated hosts: {why}")


def test_step_time_is_compute_plus_exposed_communication(folder):
    got = report("--model tiny.json --ranks 2 --codec fp32 --steps 3", folder)
    assert got["compute_ms"] == 12
    assert got["forward_ms"] == 4
    assert got["step_ms"] >= 12
    assert got["exposed_ms"] == pytest.approx(got["step_ms"] - 12)
    assert got["values"] == 1_201_000
    assert got["buckets"] == [2, 1]
    # Two ranks by `server`: half of the values and half of the results go to the other rank, and frames have headers.
    assert 4 * 1_201_000 < got["bytes_sent_per_rank"] < 4 * 1_201_000 * 1.01
    assert got["wire_bytes_per_host"] is None
    assert got["cpu_s_per_rank"] > 0
    assert sum(part["values"] for part in got["plan"]) == 1_201_000


def test_scale_shrinks_tensors_and_compute_scale_times(folder):
    got = report("--model tiny.json:scale=0.5 --compute-scale 2 --ranks 2 --steps 1", folder)
    assert got["values"] == 600_500
    assert got["compute_ms"] == 24
    assert got["step_ms"] >= 24
    assert report("--model hdc --compute-scale 0 --ranks 2 --steps 1", folder)["compute_ms"] == 0


@pytest.mark.parametrize("cap", [0.5, 1, 2, 25])
def test_buckets_equal_pytorchs(cap, folder):
    dist = pytest.importorskip("torch.distributed")
    import torch

    line = f"--model vit_b_16:scale=0.1 --ranks 1 --steps 1 --compute-scale 0 --codec fp32 --bucket-cap-mb {cap}"
    listed = json.loads((ROOT / "data/models/vit_b_16.json").read_text())["tensors"]
    gradients = [torch.empty(max(int(t["values"] * 0.1), 1)) for t in listed]
    limits = [int(min(cap, 1) * 2**20), int(cap * 2**20)]
    theirs, _ = dist._compute_bucket_assignment_by_size(gradients, limits, [False] * len(gradients))
    assert report(line, folder)["buckets"] == [len(bucket) for bucket in theirs]


@pytest.mark.parametrize("when", ["ready", "end", "turns"])
def test_buckets_are_submitted_at_the_given_times(when, folder):
    got = report(f"--model tiny.json --ranks 2 --steps 2 --hand-over {when} --bucket-cap-mb 0", folder)
    assert got["hand_over"] == when
    assert (got["late_ms"] is None) == (when == "turns")
    # A bucket per tensor, so no two tensors share a part: the small one has a part of its own.
    assert sorted(part["values"] for part in got["plan"]) == [1000, 1_200_000]


def test_choices_select_the_codec_of_each_tensor(folder):
    (folder / "choices.json").write_text('{"embedding*": {"codec": "qtopk", "strategy": "gather"}}')
    plan = report("--model tiny.json --ranks 3 --codec bf16 --choices choices.json --steps 1", folder)["plan"]
    assert {"as": "qtopk by gather", "parts": 1, "values": 800_000} in plan
    assert {part["as"].split(" ")[0] for part in plan} == {"fp32", "bf16", "qtopk"}


@pytest.mark.parametrize("transport", ["ucx:transports=tcp,self", "tcp", "auto"])
def test_ranks_reach_each_other_over(transport, folder):
    assert report(f"--model tiny.json --ranks 2 --steps 1 --transport {transport}", folder)["step_ms"] >= 12


def test_without_lanes_the_calling_thread_does_all(folder):
    assert report("--model tiny.json --ranks 2 --steps 1 --lanes 0", folder)["step_ms"] >= 12


WRONG = {
    "--model bert_bse": "unknown model 'bert_bse': did you mean 'bert_base'?",
    "--model hdc:scle=0.1": "its one option is scale",
    "--model hdc:scale=2": "above 0 and at most 1",
    "--model hdc:scale=0": "above 0 and at most 1",
    "--model hdc:scale=nan": "above 0 and at most 1",
    "--model wrong.json": "tensor 0: it needs `name`",
    "--model late.json": "b: it is ready before the one above it",
    "--model twice.json": "a: it occurs twice",
    "--model rows.json": "10 values are not a whole number of rows of 3",
    "--model empty.json": "not a list of a model",
    "--model text.json": "not a list of a model",
    "--model /dev/zero": "larger than 16 MiB",
    "--model hdc --link 1Gbits": "--link",
    "--model hdc --link 0Gb/s": "--link",
    "--model hdc --link fast": "--link",
    "--model hdc --link 1Gb/s+50us": "--tell-link",
    "--model hdc --tell-link": "--tell-link: requires --link",
    "--model hdc --ranks 0": "--ranks",
    "--model hdc --ranks 257": "--ranks",
    "--model hdc --ranks 251 --link 1Gb/s": "at most 250",
    "--model hdc --hosts 3x2": "hosts '3x2': must name the hosts of 4 ranks",
    "--model hdc --transport loop --link 1Gb/s": "use ucx or tcp",
    "--model hdc --transport uxc": "did you mean 'ucx'",
    "--model hdc --codec topc": "did you mean 'topk'",
    "--model hdc --strategy rong": "did you mean 'ring'",
    "--model hdc --hand-over later": "--hand-over",
    "--model hdc --steps 0": "--steps",
    "bert_base": "write 'bert_base' after --model",
    "": "give either --model NAME, or --n VALUES",
    "--model hdc --n 100": "give either --model NAME, or --n VALUES",
}


@pytest.mark.parametrize("line", WRONG)
def test_invalid_input_is_refused_with_the_cure(line, folder):
    def tensor(name, values=10, row=10, ready_ms=1):
        return {"name": name, "values": values, "row": row, "ready_ms": ready_ms}

    lists = {
        "wrong": [{"name": "a"}],
        "late": [tensor("a", ready_ms=2), tensor("b")],
        "twice": [tensor("a"), tensor("a")],
        "rows": [tensor("a", row=3)],
        "empty": [],
    }
    for name, tensors in lists.items():
        (folder / f"{name}.json").write_text(json.dumps({"model": name, "forward_ms": 1, "tensors": tensors}))
    (folder / "text.json").write_text("a model")
    done = run(line, folder)
    assert done.returncode == 2, done.stderr
    assert WRONG[line] in done.stderr
    assert done.stderr.count("\n") == 1


def test_missing_file_is_an_io_error(folder):
    done = run("--model nowhere.json", folder)
    assert done.returncode == 1
    assert "nowhere.json: cannot be read" in done.stderr


def test_a_plan_longer_than_a_pipe_holds(folder):
    """Rank 0 must be able to write a long answer before it ends, so its pipe must be read while it runs."""
    got = report(
        "--n 3000000 --part-values 1000 --min-values 0 --ranks 2 --transport ucx --codec fp32 --steps 1", folder
    )
    assert got["plan"] == [{"as": "fp32 by server", "parts": 3000, "values": 3_000_000}]  # 3000 lines, 64 KiB of pipe


def test_a_model_has_the_identity_checked_and_no_ledger(folder):
    got = report("--model tiny.json --ranks 2 --steps 1 --codec topk --transport loop", folder)
    assert (got["identical"], got["ledger_error"], got["ledger_exact"]) == (True, None, None)
    assert got["cpu_s_per_rank"] is None  # threads of one process
    assert "not checked; --n checks it" in run("--model tiny.json --ranks 2 --steps 1", folder).stdout


def test_one_tensor_has_no_compute(folder):
    got = report("--n 100000 --ranks 2 --steps 1 --codec fp32", folder)
    assert (got["model"], got["tensors"], got["values"], got["compute_ms"]) == (None, 1, 100_000, 0)
    assert got["exposed_ms"] == got["step_ms"]
    assert report("--n 0 --ranks 2 --steps 1", folder)["values"] == 0


# ---- Emulated hosts


def test_link_has_the_given_rate(hosts, folder):
    got = report("--model tiny.json --ranks 2 --codec fp32 --steps 2 --link 100Mb/s --compute-scale 0", folder)
    # Milliseconds to send the bytes of a rank, which it receives at the same time
    at_rate = 4 * 1_201_000 / (100e6 / 8) * 1e3
    assert got["step_ms"] > 0.95 * at_rate  # the burst saves less than that
    assert got["bytes_sent_per_rank"] < got["wire_bytes_per_host"] < 1.2 * got["bytes_sent_per_rank"]


@pytest.mark.parametrize("transport", ["ucx", "tcp"])
def test_ranks_of_one_host_do_not_use_its_link(transport, hosts, folder):
    line = f"--model tiny.json --ranks 4 --steps 1 --link 1Gb/s --codec fp32 --transport {transport}"
    each = report(line, folder)
    assert each["hosts"] == "4x1"
    all_in_one = report(f"{line} --hosts 1x4", folder)
    assert all_in_one["hosts"] == "1x4"
    assert all_in_one["wire_bytes_per_host"] < 10_000 < each["wire_bytes_per_host"]


@pytest.mark.parametrize("transport", ["ucx", "tcp"])
def test_both_transports_stay_on_the_link(transport, hosts, folder):
    got = report(f"--model tiny.json --ranks 3 --steps 1 --link 1Gb/s --transport {transport} --tell-link", folder)
    assert got["wire_bytes_per_host"] > got["bytes_sent_per_rank"]
    assert got["transport"].split(":")[0] == transport


def children_of(pid):
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def network_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def wait_until(true, seconds=60):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def all_networks():
    return {network_of(pid) for pid in os.listdir("/proc") if pid.isdigit()}


@pytest.fixture
def at_work(hosts, folder):
    """Runs a replay on three emulated hosts. Yields it with its ranks and all its networks."""
    ours = network_of("self")
    line = command("--model tiny.json --ranks 3 --steps 100000 --link 1Gb/s")
    process = subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def holders():
        return [pid for pid in children_of(process.pid) if network_of(pid) not in (ours, None)]

    def ranks():  # without the programs that it starts
        return [pid for h in holders() for pid in children_of(h) if network_of(pid) not in (network_of(h), None)]

    wait_until(lambda: len(ranks()) == 3)
    time.sleep(1)
    yield process, ranks(), {network_of(pid) for pid in [*holders(), *ranks()]}
    process.kill()
    process.wait()


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_command_removes_the_hosts(by, at_work):
    process, _, networks = at_work
    devices = sorted(os.listdir("/sys/class/net"))
    process.send_signal(by)
    _, error = process.communicate(timeout=300)
    assert process.returncode == -by
    assert error == ("" if by == signal.SIGKILL else "tithe: interrupted\n")
    wait_until(lambda: not networks & all_networks())
    assert sorted(os.listdir("/sys/class/net")) == devices


def test_killed_rank_is_named_and_hosts_are_removed(at_work):
    process, ranks, networks = at_work
    assert len(ranks) == 3 and len(networks) == 4
    os.kill(ranks[1], signal.SIGKILL)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 1
    assert re.search(r"rank 1\b", error)
    wait_until(lambda: not networks & all_networks())


def test_without_privileges_it_lists_the_leftovers(folder):
    """As a user who cannot create namespaces: emulated hosts are refused, --link none works."""
    if os.geteuid() != 0:
        pytest.skip("takes root to become somebody else")
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    folder.chmod(0o755)
    line = "--model hdc:scale=0.1 --ranks 2 --steps 1"
    done = run(f"{line} --link 1Gb/s", "/", **nobody)
    assert done.returncode in (0, 1)
    if done.returncode:
        assert "emulated hosts are not available here" in done.stderr
        assert "--link none" in done.stderr
    assert run(line, "/", **nobody).returncode == 0
