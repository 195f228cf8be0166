# SPDX-License-Identifier: Apache-2.0
"""tithe profile: the required content of its file, and that the file is written as a whole or not at all."""

import datetime
import json
import os
import signal
import socket
import subprocess
import time

import pytest
from test_simulate import TITHE, report

SMALL = "--most-values 4096 --transport tcp -o p.json"


def test_codecs_of_several_phases_have_numbers_for_each(tmp_path):
    codecs = {"powersgd": 2, "scalecom": 2, "thc": 2, "fp8_shared": 2, "sign_majority": 2, "fp32": 1}
    flags = " ".join(f"--codec {name}" for name in codecs)
    found = report(f"profile --ranks 2 {flags} {SMALL}", tmp_path)["codecs"]
    for name, phases in codecs.items():
        each = [found[name], *found[name].get("later_phases", [])]
        assert len(each) == phases, name
        for phase in each:
            assert [values for values, _ in phase["encode"]] == [256, 2048, 4096]
            assert all(seconds > 0 for _, seconds in phase["encode"]), name
            assert 0 < phase["typical"] <= 1
        assert all(seconds > 0 for _, seconds in each[-1]["store"]), name
        assert all(seconds == 0 for phase in each[:-1] for _, seconds in phase["store"]), name
    report("simulate --model hdc --profile p.json --codec powersgd --compare thc --compare sign_majority", tmp_path)


def test_every_codec_is_measured_unless_some_are_named(tmp_path):
    found = report(f"profile --ranks 1 {SMALL}", tmp_path)
    listed = json.loads(subprocess.run([TITHE, "codecs", "--json"], capture_output=True, check=True).stdout)
    assert set(found["codecs"]) == {codec["name"] for codec in listed["codecs"]}
    # A codec whose size depends on the data has its expected size, any other codec its exact size.
    assert found["codecs"]["fp32"]["typical"] == 1
    assert 0 < found["codecs"]["threshold"]["typical"] < 1
    assert 0 < found["codecs"]["inceptionn"]["typical"] < 1


def test_profile_records_host_time_and_unmeasured_parts(tmp_path):
    p = report(f"profile --ranks 2 --codec fp32 {SMALL}", tmp_path)
    assert p.pop("out") == "p.json"
    assert p == json.loads((tmp_path / "p.json").read_text())
    assert p["machine"] and p["target"] and p["tithe"]
    assert abs(datetime.date.fromisoformat(p["date"]) - datetime.date.today()).days <= 1
    assert p["spread"] >= 0
    assert p["assumed"] in ([], ["eager_bytes"])  # the size from which long messages wait, if the transport has one
    assert p["costs"]["long_messages"] in ("at once", "posted", "asked")
    assert 0 < p["costs"]["many_to_one"] <= 1
    assert p["costs"]["step_s"] > 0
    # One rank has no link, so the cost of messages is assumed.
    alone = report(f"profile --ranks 1 --codec fp32 {SMALL}", tmp_path)
    assert {"post_s", "complete_s", "send_s_per_byte", "receive_s_per_byte"} <= set(alone["assumed"])
    assert alone["costs"]["post_s"] > 0


def test_stopped_profile_leaves_no_file(tmp_path):
    line = [TITHE, "profile", "--ranks", "2", "--transport", "tcp", "-o", "p.json"]
    measuring = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    measuring.send_signal(signal.SIGTERM)
    assert measuring.wait(timeout=300) != 0
    assert list(tmp_path.iterdir()) == []


# ---- Ranks that a launcher started, as on several machines

FEW = ["--codec", "onebit", "--most-values", "4096"]
SECRET = {"TITHE_TOKEN": "5a" * 32}


def test_launched_ranks_measure_the_links_between_hosts(tmp_path):
    line = [TITHE, "hosts", "--hosts", "2x2", "--link", "400Mb/s", "--", TITHE, "profile", "--launched", *FEW]
    line += ["--transport", "tcp:trust=10.77.0.0/16", "-o", "p.json", "--cluster", "c.toml"]
    done = subprocess.run(
        line, cwd=tmp_path, env={**os.environ, **SECRET}, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode and "are not available here" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert "rank 3 of 4: measured; rank 0 has the file" in done.stdout
    p = json.loads((tmp_path / "p.json").read_text())
    assert (p["ranks"], p["hosts"], p["one_machine"]) == (4, "2x2", True)  # true: the emulated hosts are on one machine
    rates = {(link["from"], link["to"]): link["bytes_per_s"] for link in p["links"]}
    assert len(rates) == 12
    between = [rate for (a, b), rate in rates.items() if a // 2 != b // 2]
    assert 0 < max(between) < 56e6 < max(rates[0, 1], rates[2, 3])
    assert set(p["codecs"]) == {"fp32", "bf16", "zip", "onebit"}  # baselines beside the requested codec
    (setting,) = report("simulate --model hdc --cluster ./c.toml --codec fp32 --strategy hosts", tmp_path)["settings"]
    assert setting["ranks"] == 4
    assert setting["step_ms"] > 80  # 4.6 MB by 400 Mbit/s


def launched(rank, folder, port, *more):
    env = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    line = [TITHE, "profile", "--launched", *FEW, "--transport", "tcp", "-o", str(folder / "p.json"), *more]
    return subprocess.Popen(line, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def a_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def test_dead_launched_rank_is_named_and_no_file_written(tmp_path):
    port = a_port()
    first, second = (launched(rank, tmp_path, port) for rank in (0, 1))
    time.sleep(0.5)
    second.kill()
    second.wait()
    _, first_errors = first.communicate(timeout=120)
    assert first.returncode == 1
    assert "rank 1" in first_errors
    assert list(tmp_path.iterdir()) == []


def test_failing_launched_rank_gives_the_others_its_reason(tmp_path):
    port = a_port()
    first, second = (launched(rank, tmp_path, port, *(["--port", str(port)])) for rank in (0, 1))
    assert [p.wait(timeout=120) for p in (first, second)] == [0, 0]
    first, second = launched(0, tmp_path / "absent", port), launched(1, tmp_path, port)
    for p in (first, second):
        assert "absent does not exist" in p.communicate(timeout=30)[1]
        assert p.returncode == 1


def test_ranks_of_a_launcher_do_not_each_start_others(tmp_path):
    env = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for more, word in (([], "give --launched"), (["--launched", "--link", "1Gb/s"], "for emulated hosts")):
        line = [TITHE, "profile", *more]
        done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert word in done.stderr
