# SPDX-License-Identifier: Apache-2.0
"""tithe simulate and tithe profile: properties of their output that hold for all numbers, and their refusals."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))


def run(line, folder=ROOT):
    return subprocess.run(
        [TITHE, *shlex.split(line)], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def report(line, folder=ROOT):
    done = run(f"{line} --json", folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(line, code, *words, folder=ROOT):
    done = run(line, folder)
    assert done.returncode == code, (done.stdout, done.stderr)
    for word in words:
        assert word in done.stderr, done.stderr
    assert done.stdout == ""


def test_fewer_bytes_take_less_time_on_a_slow_link():
    line = "simulate --model vgg19 --cluster office_1g --strategy server --codec fp32 --compare bf16 --compare onebit"
    settings = report(line)["settings"]
    steps = [s["step_ms"] for s in settings]
    assert steps == sorted(steps, reverse=True)
    assert settings[0]["bytes_sent_per_rank"] > 1.9 * settings[1]["bytes_sent_per_rank"]
    for s in settings:
        assert s["step_ms"] >= s["compute_ms"]
        assert s["step_ms"] == pytest.approx(s["compute_ms"] + s["exposed_ms"])
        assert s["ranks_simulated"] == 1


def test_slow_link_between_offices_is_the_bottleneck():
    (answer,) = report("simulate --model resnet50 --cluster two_offices --codec bf16")["settings"]
    assert answer["busiest_link"].startswith("switch")
    assert answer["ranks_simulated"] == 8


def test_same_query_gives_the_same_answer():
    line = "simulate --model hdc --link 100Mb/s --ranks 4 --codec fp8 --strategy ring"
    assert report(line) == report(line)


def test_sweeps_have_a_row_per_point_and_a_page(tmp_path):
    line = "simulate --model hdc --cluster office_1g --codec fp32 --compare bf16 --sweep"
    points = report(f"{line} bandwidth --html sweep.html", tmp_path)["points"]
    for setting in range(2):
        steps = [p["settings"][setting]["step_ms"] for p in points]
        assert steps == sorted(steps, reverse=True)
    page = (tmp_path / "sweep.html").read_text()
    assert page.count("stroke-width='2'") == 2  # curves; the grid's lines are thinner
    assert "http" not in page  # the page loads no other resource
    assert [p["at"] for p in report(f"{line} ranks", tmp_path)["points"]] == [2, 4, 8]
    ratios = report("simulate --model hdc --cluster office_1g --codec topk --sweep ratio")["points"]
    sent = [p["settings"][0]["bytes_sent_per_rank"] for p in ratios]
    assert sent == sorted(sent)


def test_page_shows_the_time_of_each_stage(tmp_path):
    line = "simulate --model hdc --cluster office_1g --codec fp32 --compare onebit --html time.html"
    settings = report(line, tmp_path)["settings"]
    page = (tmp_path / "time.html").read_text()
    assert page.count("<rect") == 5 + 5 * len(settings)  # the legend's, and those of each setting
    assert page.count("<svg") == page.count("</svg>") == 1
    assert "http" not in page
    assert "of office_1g; costs are" in page
    for s in settings:
        assert f"<td>{s['step_ms']:.3f}</td>" in page
        assert "<td>{:.1f} to {:.1f}</td>".format(*s["step_ms_between"]) in page
        assert s["setting"] in page


def test_equal_ranks_are_simulated_once(tmp_path):
    line = "simulate --model hdc --codec onebit --ranks 4096 --link 10Gb/s"
    (one,) = report(line)["settings"]
    assert (one["ranks"], one["ranks_simulated"]) == (4096, 1)
    bounded = f"ulimit -v 1000000; exec {TITHE} {line} --strategy tree --compare onebit@server"
    # Refused before the page is drawn, which would take GBs
    done = subprocess.run(["bash", "-c", bounded], capture_output=True, text=True)
    assert done.returncode == 2 and "different ranks" in done.stderr and "--strategy server" in done.stderr, done.stderr
    for strategy, simulated in (("server", 1), ("hosts", 1), ("ring", 8)):
        (answer,) = report(f"simulate --model vgg19 --cluster hipress_ec2 --ranks 256 --strategy {strategy}")[
            "settings"
        ]
        assert answer["ranks_simulated"] == simulated, strategy


def test_local_steps_are_their_exchanges_spread_over_a_window():
    line = "simulate --model resnet50 --cluster eight_sites --codec eden --compare bf16"
    each = report(f"{line} --every 1")["settings"]
    for alone in each:
        assert alone["step_ms"] == pytest.approx(alone["compute_ms"] + alone["exchange_ms"])
    for every, fragments, delay in [(30, 1, 0), (30, 1, 29), (30, 3, 0), (30, 3, 2)]:
        windows = report(f"{line} --every {every} --fragments {fragments} --delay {delay}")["settings"]
        for alone, mean in zip(each, windows, strict=True):
            assert mean["compute_ms"] == alone["compute_ms"]
            assert mean["bytes_sent_per_rank"] == pytest.approx(alone["bytes_sent_per_rank"] / every, rel=0.01)
            if fragments == 1:
                waits = max(0.0, alone["exchange_ms"] - delay * alone["compute_ms"])
                assert mean["exposed_ms"] == pytest.approx(waits / every)
            else:
                assert alone["exchange_ms"] / 3 < mean["exchange_ms"] < alone["exchange_ms"] / 2
                assert mean["exposed_ms"] <= fragments * mean["exchange_ms"] / every
            assert mean["step_ms"] == pytest.approx(mean["compute_ms"] + mean["exposed_ms"])


def test_trace_is_valid_for_viewers(tmp_path):
    for more, names in (("", set()), ("--strategy server", {"merge"})):
        report(f"simulate --model hdc --link 1Gb/s --ranks 2 --codec fp32 {more} --trace t.json", tmp_path)
        events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        assert {"encode", "send", "recv", "store", *names} <= {e["name"] for e in events}
        assert all(e["ph"] == "X" and e["dur"] >= 0 and e["ts"] >= 0 for e in events)


def test_sessions_get_the_clusters_link_or_the_option():
    line = "simulate --model vgg19 --link 100Mb/s --ranks 4"
    steps = {
        more: report(f"{line} {more}")["settings"][0]["step_ms"]
        for more in ("", "--tell-link none", "--tell-link 100Mb/s")
    }
    assert steps[""] < steps["--tell-link none"]
    refused(f"{line} --tell-link quick", 2, "link 'quick'", "10Gb/s")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--model bert_bass --cluster office_1g", ("unknown model", "bert_base")),
        ("--model hdc --cluster ofice_1g", ("unknown cluster 'ofice_1g'", "office_1g")),
        ("--model hdc --cluster office_1g --codec onebitt", ("onebit",)),
        ("--model hdc --cluster office_1g --strategy rong", ("ring",)),
        ("--model hdc", ("--cluster",)),
        ("--model hdc --link 1Gb/s", ("--ranks",)),
        ("--model hdc --cluster office_1g --link 1Gb/s", ("give one of them",)),
        ("--model hdc --link fast --ranks 2", ("--link",)),
        ("--model hdc --cluster office_1g --sweep colour", ("bandwidth",)),
        ("--model hdc --cluster office_1g --sweep ranks --trace x.json", ("--trace", "--sweep")),
        ("--model hdc --cluster wrong.toml", ("wrong.toml:2", "rate above 0")),
        ("--model hdc --cluster cycle.toml", ("cycle.toml:1", "a cycle", "must form a tree")),
        ("--model hdc --cluster missing.toml", ("missing.toml: cannot be opened",)),
        ("--model hdc --cluster office_1g --ranks 0", ("--ranks",)),
        ("--model hdc --cluster office_1g --ranks 1048577", ("--ranks",)),
        ("--model hdc --cluster office_1g --ranks 99999999999999999999", ("--ranks",)),
        ("--model hdc --link 0Gb/s --ranks 2", ("--link", "0Gb/s")),
        ("--model hdc --cluster office_1g --compare fp9", ("fp9", "fp8")),
        ("--model hdc --cluster office_1g --compare fp8@rong", ("rong", "ring")),
        ("--model large.json --cluster office_1g", ("large.json:5", "w: ", "2^40")),
        ("--model many.json --link 1Gb/s --ranks 4", ("1099511627776 values in 262144 parts", "part_values")),
        ("--model bert_base --link 1Gb/s --ranks 1000000", ("1000000 ranks", "--ranks")),
        ("--model hdc --link 1Gb/s --ranks 1000000 --sweep ranks", ("1000000 ranks", "--ranks")),
        ("--model torn.json --cluster office_1g", ("torn.json:3", "file is complete")),
        ("--model hdc:scale=1e999 --cluster office_1g", ("above 0 and at most 1",)),
        ("--model hdc --cluster office_1g --bucket-cap-mb 1e999", ("--bucket-cap-mb",)),
        ("--model hdc --cluster wan --every 30 --fragments 4", ("--fragments 4 does not divide --every 30",)),
        ("--model hdc --cluster wan --every 30 --fragments 3 --delay 10", ("--delay 10", "at most 9")),
        ("--model hdc --cluster wan --every 22 --fragments 11", ("--fragments 11: hdc has 10 tensors",)),
        ("--model hdc --cluster wan --every 0", ("--every",)),
        ("--model hdc --cluster wan --delay 2", ("--fragments and --delay are for local steps",)),
        ("--model hdc --cluster wan --every 3 --trace x.json", ("--trace", "--every")),
        ("--model gpt2 --cluster office_1g --strategy aggregator --ranks 1048576", ("1048576 ranks", "--ranks")),
    ],
)
def test_invalid_input_is_refused_with_the_cure(line, words, tmp_path):
    files = {
        "wrong.toml": '[[hosts]]\nrate = "0Gb/s"\n',
        "cycle.toml": '[[switch]]\nname = "a"\nup = "a"\nrate = "1Gb/s"\n[[hosts]]\nat = "a"\nrate = "1Gb/s"\n',
        "large.json": '{"model": "m",\n"forward_ms": 1,\n"tensors": [\n'
        '{"name": "v", "values": 1099511627776, "row": 1, "ready_ms": 1},\n'
        '{"name": "w", "values": 18446744073709551615, "row": 1, "ready_ms": 1}]}\n',
        "many.json": '{"model": "m", "forward_ms": 1, "tensors": ['
        '{"name": "v", "values": 1099511627776, "row": 1, "ready_ms": 1}]}',
        "torn.json": '{"model": "m",\n"forward_ms": 1,\n"tensors": [{"na',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code = 1 if "missing" in line else 2
    refused(f"simulate {line}", code, *words, folder=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(files)


TENSOR = '{"name": "%s", "values": %s, "row": 1, "ready_ms": %s}'
MODEL = '{"model": "m",\n"forward_ms": 1,\n"tensors": [\n%s]}\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MODEL % ",\n".join([TENSOR % ("v", 8, 1), TENSOR.replace("row", "raw") % ("w", 8, 1)]), "m.json:5: tensor 1"),
        (MODEL % ",\n".join([TENSOR % ("v", 8, 1), TENSOR % ("w", '"8"', 1)]), "m.json:5: tensor 1: it needs"),
        (MODEL % ",\n".join([TENSOR % ("v", 8, 1), TENSOR % ("w", 8, 1e30)]), "`ready_ms` (from 0 to 1e9)"),
        (MODEL % "3", "m.json:3: tensor 0"),
        (MODEL.replace("1,", "1e30,", 1) % TENSOR % ("v", 8, 1), "`forward_ms` (from 0 to 1e9)"),
        ("import torch\n", "m.json:1: not a list of a model"),
    ],
)
def test_model_errors_name_the_line(text, expected, tmp_path):
    (tmp_path / "m.json").write_text(text)
    refused("simulate --model ./m.json --link 1Gb/s --ranks 2", 2, expected, folder=tmp_path)


def test_unwritable_output_is_refused_before_simulation(tmp_path):
    for line in (
        "plan --model bert_large --cluster cloud_100g -o absent/p.json",
        "plan --model bert_large --cluster cloud_100g --html absent/p.html",
        "simulate --model hdc --cluster office_1g --trace absent/t.json",
        "simulate --model hdc --cluster office_1g --html absent/p.html",
    ):
        refused(line, 1, "absent does not exist", folder=tmp_path)


def test_a_folder_is_no_cluster(tmp_path):
    refused("simulate --model hdc --cluster ./", 1, "./: cannot be read: Is a directory", folder=tmp_path)


def test_unknown_command_gives_only_an_error():
    refused("advise -- no-such-command-anywhere", 2, "no-such-command-anywhere: No such file or directory")
    assert "interrupted" not in run("advise -- no-such-command-anywhere", ROOT).stderr


def test_a_profile_is_measured_and_used(tmp_path):
    line = "profile --ranks 2 --transport tcp --codec fp32 --codec onebit --most-values 20000 -o p.json"
    answer = report(line, tmp_path)
    assert set(answer["codecs"]) == {"fp32", "bf16", "zip", "onebit"}
    assert len(answer["links"]) == 2
    assert all(link["bytes_per_s"] > 0 and link["latency_s"] > 0 for link in answer["links"])
    curve = answer["codecs"]["onebit"]["encode"]
    assert [values for values, _ in curve] == [256, 2048, 16384, 20000]
    assert all(seconds > 0 for _, seconds in curve)
    report("simulate --model hdc --profile p.json --codec fp32 --compare onebit", tmp_path)
    refused("simulate --model hdc --profile p.json --codec fp16", 2, "of fp16", "tithe profile", folder=tmp_path)
    other = json.loads((tmp_path / "p.json").read_text())
    other["machine"] = "a card of another make"
    (tmp_path / "other.json").write_text(json.dumps(other))
    words = ("a card of another", "--foreign-profile")
    refused("simulate --model hdc --profile other.json --codec fp32", 2, *words, folder=tmp_path)
    report("simulate --model hdc --profile other.json --foreign-profile --codec fp32", tmp_path)
    (tmp_path / "torn.json").write_text((tmp_path / "p.json").read_text()[:500])
    refused("simulate --model hdc --profile torn.json --codec fp32", 2, "torn.json", folder=tmp_path)


def test_link_syntax_is_the_same_for_all_verbs():
    """--link accepts the spelling LINK=1gbit of the README."""
    links = ("1Gb/s", "1gbit", "1000Mbit/s")
    steps = [report(f"simulate --model hdc --link {link} --ranks 2")["settings"] for link in links]
    assert steps[0] == steps[1] == steps[2]
    refused("simulate --model hdc --link 1gbits --ranks 2", 2, "--link", "100mbit")


def test_codec_and_strategy_use_the_syntax_of_compare():
    line = "simulate --model hdc --cluster office_1g"
    both = report(f"{line} --codec bf16 --strategy hosts")["settings"]
    assert both == report(f"{line} --codec bf16@hosts")["settings"]
    compared = report(f"{line} --codec bf16@ring --compare bf16@ring")["settings"]
    assert compared[0] == compared[1]
    got = report("replay --ranks 2 --transport loop --codec topk:ratio=0.1@gather --n 5000 --steps 1")
    assert {share["as"] for share in got["plan"]} == {"topk:ratio=0.1 by gather"}
    got = report("replay --model hdc:scale=0.01 --ranks 2 --steps 1 --transport tcp --min-values 1 --codec bf16@ring")
    assert {share["as"] for share in got["plan"]} == {"bf16 by ring"}
    for verb in (line, "replay --n 5000", "replay --model hdc"):
        refused(f"{verb} --codec bf16@ring --strategy server", 2, "bf16@ring", "--strategy", "give one of them")
        refused(f"{verb} --codec bf16@rong", 2, "rong", "ring")


def test_profile_contains_the_baselines_of_plans(tmp_path):
    """A profile of named codecs must also have the codecs that every plan compares with."""
    answer = report("profile --ranks 1 --codec onebit --most-values 1000 -o p.json", tmp_path)
    assert set(answer["codecs"]) == {"fp32", "bf16", "zip", "onebit"}
    report("simulate --model hdc --profile p.json --link 1gbit --ranks 2 --codec onebit", tmp_path)
    report("plan --model hdc --profile p.json --link 1gbit --ranks 2 --allow onebit", tmp_path)
    missing = "has no costs of fp16, eden:bits=3: add them with tithe profile --codec fp16 --codec eden:bits=3"
    line = "plan --model hdc --profile p.json --link 1gbit --ranks 2 --allow fp16 --allow onebit --allow eden:bits=3"
    refused(line, 2, missing, folder=tmp_path)


def test_sweep_reports_costs_above_the_link_bound(tmp_path):
    """Behind 100 Mbit/s on two cores a byte costs more beside the link than on a fast one, so the sweep must not be
    flat."""
    report("profile --ranks 1 --codec onebit --most-values 1000 -o p.json", tmp_path)
    profile = json.loads((tmp_path / "p.json").read_text())
    profile["costs"] |= {"send_s_per_byte": 2.3e-9, "receive_s_per_byte": 2.3e-9}
    (tmp_path / "slow.json").write_text(json.dumps(profile))
    line = "simulate --model hdc --profile slow.json --link 1Gb/s --ranks 4 --codec fp32 --sweep bandwidth"
    done = run(line, tmp_path)
    assert "warning: fp32@auto from " in done.stdout and "beside the link: 2.30 ns per byte" in done.stdout
    assert "costs beside the link" in report(line, tmp_path)["warning"]
    slow = run("simulate --model vgg16 --cluster emulated_100m --codec fp32 --sweep ranks", tmp_path)
    assert "warning" not in slow.stdout


def test_a_profile_that_cannot_be_written_is_not_measured(tmp_path):
    refused("profile --ranks 2 -o missing/p.json", 1, "missing does not exist", folder=tmp_path)
    refused("profile --ranks 2 --transport loop", 2, "threads", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_prediction_has_a_band_from_the_table_of_truth():
    done = run("simulate --model hdc --link 1Gb/s --ranks 4 --codec bf16")
    cases = (ROOT / "lab/results/truth.md").read_text().count("%)")
    assert cases > 100
    assert " times their prediction (" in done.stdout
    one = report("simulate --model hdc --link 1Gb/s --ranks 4 --codec bf16")["settings"][0]
    low, high = one["step_ms_between"]
    assert one["compute_ms"] <= low <= one["step_ms"] <= high


def test_unmeasured_sizes_use_defaults_and_are_reported():
    line = "simulate --model hdc --link 1Gb/s --ranks 2 --codec dragonn --strategy gather --compare bf16"
    answer = report(line)
    assert answer["assumed_sizes"] == ["dragonn"]
    assert "sizes of dragonn depend on the gradients" in run(line).stdout
    # A hundredth of the values, each with its index, minus the values whose slot is taken: not four times that.
    whole = 1149010 * 8 * 0.01
    assert 0.7 * whole < answer["settings"][0]["bytes_sent_per_rank"] < 1.1 * whole


def test_hosts_of_several_ranks_without_a_file():
    line = "simulate --model hdc --link 1Gb/s --hosts 4x8 --codec bf16 --strategy server --compare bf16@hosts"
    server, hosts = report(line)["settings"]
    assert server["ranks"] == 32
    assert hosts["step_ms"] < server["step_ms"] / 2
    assert report(line.replace("--hosts 4x8", "--ranks 4"))["settings"][0]["ranks"] == 4
    for wrong in ("4", "4x", "0x8", "4x8x2", "x"):
        refused(line.replace("4x8", wrong), 2, "--hosts", "such as 4x8")
    refused(f"{line} --ranks 8", 2, "remove one of them")
    refused("simulate --model hdc --cluster wan --hosts 4x8", 2, "--hosts requires --link")


# No transport makes a rendezvous over TCP, so on links with a long delay the ring is faster than the server.
def test_long_messages_follow_the_transports_protocol():
    line = "simulate --model resnet50 --cluster wan --codec bf16 --strategy {}"
    ring, server = (report(line.format(s))["settings"][0]["step_ms"] for s in ("ring", "server"))
    assert ring < server
    one = "simulate --model hdc --link 100Mb/s+40ms --ranks 4 --codec fp32 --strategy ring"
    assert report(f"{one} --transport ucx") == report(one)
    assert report(f"{one} --transport tcp")["settings"][0]["step_ms"] > report(one)["settings"][0]["step_ms"]
    refused(f"{one} --transport tpc", 2, "did you mean 'tcp'?")
