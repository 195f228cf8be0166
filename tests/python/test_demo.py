# SPDX-License-Identifier: Apache-2.0
"""The parts of the demo, and a small complete demo: two ranks, few images, and an interrupt in each phase."""

import contextlib
import gzip
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import wait_until

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "demo"), str(ROOT / "lab/hosts"), str(ROOT)]

import card_report  # noqa: E402
import hosts  # noqa: E402
import report  # noqa: E402
import report_page  # noqa: E402
import rows  # noqa: E402
from lab.study import idx  # noqa: E402


def idx_bytes(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def make_data(folder, steps):
    """Makes a folder of MNIST-format files, two of them gzipped, for `steps` steps of two ranks."""
    rng = np.random.default_rng(7)
    folder.mkdir()
    for stem, n in (("train", steps * 2 * rows.BATCH), ("t10k", 100)):
        labels = rng.integers(0, 10, n, dtype=np.uint8)
        images = rng.integers(0, 128, (n, 28, 28), dtype=np.uint8)
        # A bright line at a height given by the label, which a model learns quickly
        images[np.arange(n), labels] += 100
        (folder / f"{stem}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images), 1))
    return folder


@pytest.fixture
def data(tmp_path):
    return make_data(tmp_path / "data", 24)


def test_rates_are_read_and_nonsense_is_refused():
    assert [hosts.parse_bytes(text) for text in ("64k", "2m", "65536", "64KB")] == [64_000, 2_000_000, 65_536, 64_000]
    for text in ("", "64q", "-1", "100"):
        with pytest.raises(ValueError, match="QUEUE="):
            hosts.parse_bytes(text)
    assert hosts.parse_rate("100mbit") == 100e6
    assert hosts.parse_rate("2.5Gbit") == 2.5e9
    assert hosts.parse_rate("512kbit") == 512e3
    assert hosts.parse_rate("1Gb/s") == hosts.parse_rate("1gbit") == 1e9, "as the command writes it"
    for text in ("", "100", "100mb", "-1mbit", "0mbit", "mbit", "1Gb/s+50us"):
        with pytest.raises(ValueError, match="LINK"):
            hosts.parse_rate(text)


def test_pause_gains_at_most_half_a_millisecond_of_link_time():
    assert hosts.burst_bytes(1e9) == 62_500
    assert hosts.burst_bytes(1e6) == 6_250  # four packets, whatever the rate


def test_idx_reads_plain_and_gzipped(data):
    got = idx.load(str(data))
    images, labels = got["test"]
    assert images.shape == (100, 784) and labels.dtype == np.int64
    assert len(got["train"][0]) == 24 * 2 * rows.BATCH
    for n in range(100):
        assert images[n].reshape(28, 28)[labels[n]].min() >= 100


def test_idx_refuses_other_files(data, tmp_path):
    path = tmp_path / "x"
    good = idx_bytes(np.zeros((3, 2), np.uint8))
    for bad in (b"", good[:7], good[:-1], good + b"\0", b"\0\0\x09" + good[3:]):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="x: "):
            idx.read(path)
    (data / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        idx.load(str(data))


def run_of(name, kind, seed, step, sent, curve, stats=None):
    return {
        "name": name,
        "kind": kind,
        "codec": f"codec of {name}",
        "seed": seed,
        "step_seconds": step,
        "bytes_per_step": sent,
        "parts": [0.01, step - 0.02, 0.01],
        "accuracy": curve[-1][2],
        "curve": curve,
        "identical": True,
        "stats": stats,
        "buckets": "",
    }


@pytest.fixture
def details():
    stats = {"rounds": 10, "frames_sent": 40, **{f"{part}_ns": 20_000_000 for part in report.PARTS}}
    runs = [
        run_of("quick", "tithe", 0, 0.04, 1e5, [(0, 0.0, 0.1), (10, 0.4, 0.849), (20, 0.8, 0.88)], stats),
        run_of("quick", "tithe", 1, 0.06, 3e5, [(0, 0.0, 0.1), (10, 0.6, 0.86), (20, 1.2, 0.87)], stats),
        run_of("poor", "tithe", 0, 0.01, 1e4, [(0, 0.0, 0.1), (10, 0.1, 0.5), (20, 0.2, 0.6)], stats),
        run_of("fp32", "baseline", 0, 1.0, 1e7, [(0, 0.0, 0.1), (10, 10.0, 0.86), (20, 20.0, 0.88)]),
        run_of("fp32", "baseline", 1, 1.0, 1e7, [(0, 0.0, 0.1), (10, 10.0, 0.84), (20, 20.0, 0.87)]),
    ]
    return {
        "machine": "a <machine>",
        "command": "SEEDS=2 make demo",
        "ranks": 4,
        "link": "100mbit",
        "seeds": 2,
        "epochs": 1,
        "target": 0.85,
        "local_step_seconds": 0.03,
        "link_mbit": [95.0, 94.8],
        "notes": [],
        "runs": runs,
        "failed": [],
    }


def test_results_are_means_over_seeds_in_the_documented_shape(details):
    got = report.results(details)
    assert list(got) == ["machine", "command", "ranks", "link", "seeds", "epochs", "runs"]
    entries = {entry["name"]: entry for entry in got["runs"]}
    for entry in entries.values():
        assert tuple(entry) == report.RESULT_KEYS
    assert entries["quick"]["step_seconds"] == pytest.approx(0.05)
    assert entries["quick"]["bytes_per_step"] == pytest.approx(2e5)
    assert entries["quick"]["seconds_to_target"] == pytest.approx((0.8 + 0.6) / 2)
    assert entries["fp32"]["seconds_to_target"] == pytest.approx(15.0)
    assert entries["poor"]["seconds_to_target"] is None
    assert entries["quick"]["kind"] == "tithe" and entries["fp32"]["kind"] == "baseline"


def test_the_best_row_is_the_fastest_among_the_accurate(details):
    lines = report.verdict(details)
    assert lines[0].startswith("best tithe row: quick")
    assert lines[0].endswith("the fastest step among those within 0.5 points of fp32's accuracy")
    assert re.search(r"fp32 +20\.0x faster per step +50\.0x fewer bytes +accuracy \+0\.00", lines[1])
    for run in details["runs"]:
        if run["name"] == "quick":
            run["accuracy"] = 0.86
    assert report.verdict(details) == ["no tithe row is within 0.5 points of fp32's accuracy"]


def test_more_bytes_are_called_more_and_not_a_fraction_of_fewer(details):
    details["runs"].append(run_of("powersgd", "baseline", 0, 0.02, 1e5, [(0, 0.0, 0.1), (10, 0.2, 0.88)]))
    line = report.verdict(details)[2]
    assert re.search(r"powersgd +2\.5x slower per step +2\.0x more bytes", line), line


def test_equal_messages_of_all_ranks_are_printed_once():
    notes = ["rank 0: slow", "rank 1: slow", "rank 1: odd", "all in all"]
    assert report.merged(notes) == ["ranks 0, 1: slow", "rank 1: odd", "all in all"]


def test_report_of_a_short_run_states_its_scope(details, tmp_path, monkeypatch):
    """A target above all accuracies must be inside the axes; a median over 10 of 20 steps must be labelled so."""
    details["target"] = 0.99
    details["runs"] = [run for run in details["runs"] if run["name"] != "fp32"]
    limits = []
    draw_curves = report._curves

    def kept(plt, *rest):
        figure = draw_curves(plt, *rest)
        limits.append(figure.axes[0].get_ylim())
        return figure

    monkeypatch.setattr(report, "_curves", kept)
    report_page.write_all(tmp_path, details)
    assert len(limits) == 2 and all(low < 88 and high > 99 for low, high in limits)
    page = (tmp_path / "report.html").read_text()
    assert "after the first 10;" in page
    head, body = report.cells(details)
    assert "step vs fp32" not in head and all(len(row) == len(head) and all(row) for row in body)


def test_report_is_self_contained(details, tmp_path):
    details["failed"].append({"name": "fp32", "seed": 2, "why": "rank 1 <gone>\nmore"})
    report_page.write_all(tmp_path, details)
    page = (tmp_path / "report.html").read_text()
    assert set(re.findall(r"(?:src|href)=(.{6})", page)) == {'"data:'} and "@import" not in page
    assert "a &lt;machine&gt;" in page and "rank 1 &lt;gone&gt;" in page
    pictures = sorted(path.name for path in tmp_path.glob("*.png"))
    stages = ["stages.png"]
    assert pictures == ["accuracy_by_step.png", "breakdown.png", *stages, "step_and_bytes.png", "time_to_accuracy.png"]
    assert page.count("data:image/png;base64,") == len(pictures)
    assert "FAILED: fp32, seed 2" in report.table(details)
    assert json.loads((tmp_path / "results.json").read_text()) == report.results(details)


def demo(data, out, **settings):
    environment = {**os.environ, "DATA": str(data), "OUT": str(out), "PYTHONPATH": str(ROOT / "python"), **settings}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "demo/run.py")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def has_namespaces() -> bool:
    try:
        hosts.unshare_command()
    except RuntimeError:
        return False
    return True


def test_sharded_model_has_separate_rows():
    show = "import run; print(*(row.name for row in run.Settings.from_environment().rows))"
    command = [sys.executable, "-c", show]
    done = subprocess.run(
        command, cwd=ROOT / "demo", env={**os.environ, "MODEL": "fsdp"}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["fsdp-tithe", "fsdp-fsdp2"], done.stderr


needs_namespaces = pytest.mark.skipif(not has_namespaces(), reason="no network namespaces to be had here")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Returns the folder with the results of a demo of all tasks: hosts, torch and links are set up only once."""
    folder = tmp_path_factory.mktemp("whole")
    runs = "fp32 tithe-qtopk tithe adamw-tithe adamw-fp32 fsdp-tithe fsdp-fsdp2"
    given = {"RANKS": "2", "LINK": "1gbit", "RUNS": runs, "STEPS": "3", "TARGET": "0.01"}
    process = demo(make_data(folder / "data", 24), folder / "out", **given)
    text, _ = process.communicate(timeout=900)
    assert process.returncode == 0, text
    return folder / "out"


@needs_namespaces
def test_the_whole_demo_in_small(whole):
    got = json.loads((whole / "results.json").read_text())
    entry, short, _ = got["runs"]
    assert got["link"] == "1gbit" and got["ranks"] == 2
    # A ring of two sends half of the values twice; headers and acknowledgements are added. The counters exclude the
    # queue in front of the link when they are read.
    assert 0.99 < entry["bytes_per_step"] / (rows.PARAMETERS * 4) < 1.1
    assert entry["step_seconds"] > rows.PARAMETERS * 4 * 8 / 1e9  # not faster than the link
    assert entry["seconds_to_target"] is not None
    assert short["kind"] == "tithe" and short["bytes_per_step"] < entry["bytes_per_step"] / 20
    details = json.loads((whole / "details.json").read_text())
    assert all(run["identical"] for run in details["runs"]) and len(details["link_mbit"]) == 2
    assert details["runs"][2]["name"] == "tithe" and details["runs"][2]["codec"] == "eden:bits=3"
    assert (whole / "report.html").is_file()


@needs_namespaces
def test_a_transformer_under_adamw_in_small(whole):
    details = json.loads((whole / "adamw/details.json").read_text())
    plain, ours = sorted(details["runs"], key=lambda run: run["name"])
    assert (plain["name"], ours["name"], ours["codec"]) == ("fp32", "tithe", "eden:bits=3")
    assert plain["identical"] and ours["identical"]
    # In a run of 20 steps, every second step exchanges parts
    assert ours["bytes_per_step"] < plain["bytes_per_step"] / 2
    for run in details["runs"]:
        assert len(run["losses"]) == len(run["curve"]) > 2
        assert run["losses"][-1] < run["losses"][0] - 0.5  # the loss decreases
    page = (whole / "report.html").read_text()
    assert "A transformer under AdamW" in page and "adamw/report.html" in page and "Fashion-MNIST" in page
    own = (whole / "adamw/report.html").read_text()
    assert "AdamW, rate" in own and "Fashion-MNIST" not in own and "<th>loss</th>" in own


@needs_namespaces
def test_a_sharded_transformer_in_small(whole):
    plain, ours = sorted(json.loads((whole / "fsdp/details.json").read_text())["runs"], key=lambda run: run["name"])
    assert (plain["name"], ours["name"], ours["codec"]) == ("fsdp2", "tithe", "eden:bits=4,scale=unbiased")
    assert plain["identical"] and ours["identical"]
    assert ours["bytes_per_step"] < plain["bytes_per_step"]
    page = (whole / "report.html").read_text()
    assert "A transformer under fully_shard" in page and "fsdp/report.html" in page


@needs_namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="TAP interfaces take root")
@pytest.mark.skipif(not (ROOT / "build/tithe").exists(), reason="the command is not built")
def test_the_demo_with_cards_in_small(data, tmp_path):
    runs = {"CARD": "1", "RUNS": "ring-card ring-lossy wa", "STEPS": "4", "TARGET": "0.5"}
    process = demo(data, tmp_path / "out", RANKS="2", LINK="1gbit", **runs)
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    packed, lossy, wa = json.loads((tmp_path / "out/details.json").read_text())["runs"]
    assert packed["identical"] and packed["apart"] == 0 and wa["identical"]  # the cards are lossless again
    assert not lossy["identical"] and 0 < lossy["apart"] < 0.1 and lossy["bytes_per_step"] < 0.5 * wa["bytes_per_step"]
    assert packed["codec"] == "snap" and wa["codec"] == "fp32"
    assert packed["identical"] and wa["identical"]
    once = rows.PARAMETERS * 4
    assert 1.0 < wa["bytes_per_step"] / once < 1.15  # the bytes of a worker, and acknowledgements
    assert 2.0 < wa["busiest_bytes_per_step"] / once < 2.3  # the aggregator sends results to both workers
    assert packed["bytes_per_step"] < 0.85 * once  # retransmissions on a busy machine included
    assert packed["processor_seconds"] > 0 and packed["card_seconds"] > 0 and wa["server_seconds"] > 0
    assert "WA + card" not in text and "ring + card reaches 50%" in text
    assert "With a network card" in (tmp_path / "out/report.html").read_text()


def test_card_results_are_checked_against_the_goals(details, tmp_path):
    """The report compares the results with cards to the goals of INCEPTIONN's authors."""
    details |= {"card": True, "layers": [784, 10], "steps": 0, "runs": []}
    for name, step, sent, busiest, processor in (
        ("ring-card", 0.1, 1e6, 1e6, 0.050),
        ("wa", 0.5, 4e6, 16e6, 0.040),
        ("ring", 0.3, 6e6, 6e6, 0.051),
    ):
        run = run_of(name, "tithe", 0, step, sent, [(0, 0.0, 0.1), (10, 10 * step, 0.86), (20, 20 * step, 0.88)])
        more = {"busiest_bytes_per_step": busiest, "processor_seconds": processor, "per_epoch": 20}
        details["runs"].append({**run, **more, "server_seconds": 0.1 * (name == "wa"), "card_seconds": 0.02})
    assert card_report.goals(details) == [
        "ring + card reaches 85% 5.00x as fast as WA, goal 2.2x: met",
        "its exchange takes 85.1% less time than WA's, goal 70%: met",
        "the busiest host sends 93.8% fewer bytes",
        "a worker's step takes 0.98 of the processor time of the ring of fp32, goal 1.00: met",
    ]
    first = card_report.markdown(details).splitlines()
    assert first[5].startswith(
        "| WA: workers and an aggregator, fp32 | 500 ms | 470 ms | 4.00 MB | 16.00 MB | 88.00% |"
    )
    assert [line.split(" | ")[7] for line in first[5:8]] == ["0.50"] * 3
    details["runs"][0]["curve"] = [(0, 0.0, 0.1), (20, 2.0, 0.5)]
    assert "not reached" in card_report.table(details)
    assert len(card_report.goals(details)) == 3
    for folder, runs in (("a", details["runs"][:1]), ("b", details["runs"][1:])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "details.json").write_text(json.dumps({**details, "runs": runs}))
    read = card_report.read([tmp_path / "a", tmp_path / "b"])
    assert read["runs"] == json.loads(json.dumps(details["runs"]))
    report_page.write_all(tmp_path / "a", read, card_report.section(read))
    page = (tmp_path / "a/report.html").read_text()
    assert "With a network card" in page and "in runs of the same job" in page
    (tmp_path / "b/details.json").write_text(json.dumps({**details, "link": "1gbit"}))
    with pytest.raises(ValueError, match="link: 100mbit in one folder, 1gbit"):
        card_report.read([tmp_path / "a", tmp_path / "b"])


def test_wrong_settings_are_named(data, tmp_path):
    for settings, word in (
        ({"LINK": "fast"}, "LINK"),
        ({"RANKS": "1"}, "RANKS"),
        ({"RUNS": "fp64"}, "fp64"),
        ({"MODEL": "x"}, "MODEL"),
    ):
        process = demo(data, tmp_path / "out", **settings)
        text, _ = process.communicate(timeout=600)
        assert process.returncode == 2 and word in text


def family(pid: int) -> list[int]:
    """Returns a process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # a thread that ended
                found += [int(child) for child in task.read_text().split()]
    return found


@needs_namespaces
def test_hosts_use_and_report_a_permitted_congestion_control():
    inside = """import hosts
hosts.CONGESTION_CONTROLS = ("no-such", "reno")
made = hosts.Hosts(ranks=1, link="20mbit")
made.build()
has = hosts.command(*made.prefix(0), "cat", "/proc/sys/net/ipv4/tcp_congestion_control")
print(made.congestion_control, has, made.notes)
"""
    enter = f"import hosts, sys; sys.exit(hosts.enter([sys.executable, '-c', {inside!r}]))"
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'lab/hosts'}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-c", enter], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["reno", "reno"] and "keeps no-such from these hosts" in done.stdout


def namespaces_of(pids: list[int]) -> set[int]:
    """Returns the inode numbers of their network namespaces, except the tests' own."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # the process ended, or belongs to another user
            found.add(Path(f"/proc/{pid}/ns/net").stat().st_ino)
    return found - {Path("/proc/self/ns/net").stat().st_ino}


@needs_namespaces
@pytest.mark.parametrize(
    ("phase", "name"),
    [
        ("starting", signal.SIGTERM),
        ("carry", signal.SIGINT),
        ("step", signal.SIGINT),
        ("step", signal.SIGKILL),
    ],
)
def test_interrupt_leaves_no_processes_and_networks(data, tmp_path, phase, name):
    process = demo(data, tmp_path / "out", RANKS="2", LINK="20mbit", EPOCHS="9", RUNS="fp32")
    for line in process.stdout:
        if phase in line:
            break
    wait_until(lambda: len(family(process.pid)) >= 4)  # the demo, unshare, the first process inside, ranks
    time.sleep(0.2)
    inside = family(process.pid)
    ours = namespaces_of(inside)
    assert ours
    # Read now, because later namespaces may reuse the numbers
    every = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    os.kill(process.pid, name) if name == signal.SIGKILL else os.killpg(process.pid, name)
    process.stdout.read()  # returns at its end: no process inside holds it open any more
    assert process.wait(timeout=300) != 0
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in inside))
    assert not ours & namespaces_of(every)
    assert not re.search(r"nsfs.*net:", Path("/proc/self/mountinfo").read_text())
