# SPDX-License-Identifier: Apache-2.0
"""tithe profile: what must be in its file whatever the numbers, and that it is there whole or not at all."""

import datetime
import json
import signal
import subprocess
import time

from test_simulate import TITHE, told

SMALL = "--most-values 4096 --transport tcp -o p.json"


def test_codecs_of_several_phases_have_numbers_for_each(tmp_path):
    codecs = {"powersgd": 2, "scalecom": 2, "thc": 2, "fp8_shared": 2, "sign_majority": 2, "fp32": 1}
    flags = " ".join(f"--codec {name}" for name in codecs)
    found = told(f"profile --ranks 2 {flags} {SMALL}", tmp_path)["codecs"]
    for name, phases in codecs.items():
        each = [found[name], *found[name].get("later_phases", [])]
        assert len(each) == phases, name
        for phase in each:
            assert [values for values, _ in phase["encode"]] == [256, 2048, 4096]
            assert all(seconds > 0 for _, seconds in phase["encode"]), name
            assert 0 < phase["typical"] <= 1
        assert all(seconds > 0 for _, seconds in each[-1]["store"]), name
        assert all(seconds == 0 for phase in each[:-1] for _, seconds in phase["store"]), name
    told("simulate --model hdc --profile p.json --codec powersgd --compare thc --compare sign_majority", tmp_path)


def test_every_codec_is_measured_unless_some_are_named(tmp_path):
    found = told(f"profile --ranks 1 {SMALL}", tmp_path)
    listed = json.loads(subprocess.run([TITHE, "codecs", "--json"], capture_output=True, check=True).stdout)
    assert set(found["codecs"]) == {codec["name"] for codec in listed["codecs"]}
    # A codec whose size depends on the data has its expected size, any other has its own.
    assert found["codecs"]["fp32"]["typical"] == 1
    assert 0 < found["codecs"]["threshold"]["typical"] < 1
    assert 0 < found["codecs"]["inceptionn"]["typical"] < 1


def test_it_says_where_and_when_and_what_was_not_measured(tmp_path):
    p = told(f"profile --ranks 2 --codec fp32 {SMALL}", tmp_path)
    assert p.pop("out") == "p.json"
    assert p == json.loads((tmp_path / "p.json").read_text())
    assert p["machine"] and p["target"] and p["tithe"]
    assert abs(datetime.date.fromisoformat(p["date"]) - datetime.date.today()).days <= 1
    assert p["spread"] >= 0
    assert p["assumed"] in ([], ["eager_bytes"])  # from where on long messages wait, if they do
    assert p["costs"]["long_messages"] in ("at once", "posted", "asked")
    assert 0 < p["costs"]["many_to_one"] <= 1
    assert p["costs"]["step_s"] > 0
    # One rank has no link: what messages cost is assumed.
    alone = told(f"profile --ranks 1 --codec fp32 {SMALL}", tmp_path)
    assert {"post_s", "complete_s", "send_s_per_byte", "receive_s_per_byte"} <= set(alone["assumed"])
    assert alone["costs"]["post_s"] > 0


def test_one_that_is_stopped_leaves_nothing(tmp_path):
    line = [TITHE, "profile", "--ranks", "2", "--transport", "tcp", "-o", "p.json"]
    measuring = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    measuring.send_signal(signal.SIGTERM)
    assert measuring.wait(timeout=300) != 0
    assert list(tmp_path.iterdir()) == []
