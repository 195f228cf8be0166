# SPDX-License-Identifier: Apache-2.0
"""The output of build/tithe, word for word: one file per case in golden/, with the exit code, stdout and stderr.

Figures that vary from run to run are masked by the case's patterns. TITHE_REWRITE_GOLDEN=1 writes the files again; an
intended change is then visible in the diff. TITHE_BIN names another binary than build/tithe.
"""

import json
import math
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parent / "golden"
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))
MS = {r"\d+\.\d{3} ms": "<time> ms", r"\d+\.\d{3} \.\. \d+\.\d{3}": "<spread>"}
SPEEDS = {
    r" +\d+\.\d\d GB/s, \d+\.\d\d \(\d+\.\d\d \.\. \d+\.\d\d, \d+ pairs\)": " <speed>",
    r"\((simd|ref)\)": "(<impl>)",
}
ONE_TENSOR = "replay --transport loop"
LITTLE = {r"[\d.]+e-\d+": "<little>"}
SPECS = (
    "fp32",
    "bf16",
    "fp16",
    "onebit",
    "topk:ratio=0.3",
    "topk:values=bf16,indices=delta",
    "qtopk",
    "tbq:mode=literal",
    "qsgd:bits=3,bucket=256",
    "dgc:ratio=1",
    "dragonn:ratio=0.2,slots=16",
    "randomk:ratio=0.5",
    "threshold:tau=0.5",
    "graddrop:ratio=0.2,values=4bit,indices=bitmap",
    "dgc:ratio=0.1,values=8bit,indices=auto",
)


@dataclass
class Case:
    line: str
    masks: dict[str, str] = field(default_factory=dict)


CASES = {
    "help": Case("--help"),
    "help_encode": Case("encode --help"),
    "help_replay": Case("replay --help"),
    "codecs": Case("codecs"),
    "codecs_json": Case("codecs --json", {r'"impls": \[[^\]]*\]': '"impls": <names>'}),
    "encode": Case("encode topk:ratio=0.02 values.npy out.tithe"),
    "encode_json": Case("encode onebit values.f32 out.tithe --json"),
    "encode_nothing": Case("encode bf16 empty.f32 out.tithe"),
    "decode": Case("decode frame.tithe out.npy"),
    "decode_json": Case("decode frame.tithe out.f32 --json"),
    "inspect_values": Case("inspect values.npy"),
    "inspect_values_json": Case("inspect values.npy --json"),
    "inspect_nan": Case("inspect nan.npy"),
    "inspect_frame": Case("inspect frame.tithe"),
    "inspect_frame_json": Case("inspect frame.tithe --json"),
    "inspect_concat": Case("inspect topk_concat.bin"),
    "inspect_non_finite": Case("inspect flag_non_finite.bin"),
    "bench_codec": Case("bench codec bf16 --n 20000 --rounds 3", SPEEDS),
    "replay": Case(f"{ONE_TENSOR} --ranks 3 --codec topk --strategy ring --n 10007 --steps 3", MS),
    "replay_rounded": Case(f"{ONE_TENSOR} --ranks 2 --codec onebit --n 10007 --steps 3", MS | LITTLE),
    "replay_choices": Case(f"{ONE_TENSOR} --ranks 2 --choices choices.json --n 10007 --steps 2", MS),
    "replay_small": Case(f"{ONE_TENSOR} --ranks 2 --codec bf16 --n 1000 --steps 2", MS),
    "error_choices": Case("replay --n 10 --choices wrong.json"),
    "error_no_choices": Case("replay --n 10 --choices nowhere.json"),
    "error_no_verb": Case(""),
    "error_unknown_verb": Case("encod fp32 values.npy out.tithe"),
    "error_missing_argument": Case("encode fp32 values.npy"),
    "error_unknown_option": Case("codecs --jsn"),
    "error_unknown_codec": Case("encode topc values.npy out.tithe"),
    "error_unknown_parameter": Case("encode topk:ration=0.1 values.npy out.tithe --json"),
    "error_range": Case("encode topk:ratio=2 values.npy out.tithe"),
    "error_no_file": Case("inspect nowhere.npy"),
    "error_no_folder": Case("encode fp32 values.npy nowhere/out.tithe"),
    "error_f64": Case("inspect f64.npy"),
    "error_fortran": Case("inspect fortran.npy"),
    "error_cut_npy": Case("inspect cut.npy"),
    "error_odd_bytes": Case("inspect odd.f32"),
    "error_nan": Case("encode fp32 nan.npy out.tithe"),
    "error_not_a_frame": Case("decode values.npy out.npy"),
    "error_changed_frame": Case("decode changed.tithe out.npy"),
    "error_changed_frame_json": Case("decode changed.tithe out.npy --json"),
    "error_many_values": Case("decode --max-values 10 frame.tithe out.npy"),
    "error_strategy": Case("replay --n 10 --strategy rong"),
    "error_transport": Case("replay --n 10 --transport uxc"),
    "error_forgotten_colon": Case("encode topk ratio=0.01 values.npy out.tithe"),
    "error_frame_to_encode": Case("encode fp32 frame.tithe out.tithe"),
    "error_shell": Case("completion bas"),
    "help_verb": Case("help"),
    "help_verb_bench": Case("help bench codec"),
    "codecs_topk": Case("codecs topk:ratio=0.02"),
    "codecs_thc": Case("codecs thc"),
    "keys_new": Case("keys new job --ranks 2 --days 1"),
    "error_keys_there": Case("keys new . --ranks 2"),
    "error_threads": Case("bench codec fp32 --threads 200", {r"may use \d+ cores": "may use <n> cores"}),
}


def run(line, folder, **options):
    return subprocess.run(
        [TITHE, *shlex.split(line)], cwd=folder, capture_output=True, text=True, timeout=300, check=False, **options
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Makes files of values whose bits do not depend on any library's random numbers, and files with one defect
    each."""
    path = tmp_path_factory.mktemp("cli")
    i = np.arange(3000, dtype=np.int64)
    values = ((i * 7919 % 509 - 254) * (i * 104729 % 251 - 125) / 4096).astype("<f4")
    np.save(path / "values.npy", values.reshape(30, 100))
    values.tofile(path / "values.f32")
    (path / "empty.f32").write_bytes(b"")
    (path / "odd.f32").write_bytes(b"\0" * 7)
    np.save(path / "f64.npy", values.astype("<f8"))
    np.save(path / "fortran.npy", np.asfortranarray(values.reshape(30, 100)))
    (path / "cut.npy").write_bytes((path / "values.npy").read_bytes()[:-5])
    (path / "choices.json").write_text('{"grad*": {"codec": "topk", "strategy": "gather"}}')
    (path / "wrong.json").write_text('{"*.bias": "fp23"}')
    holed = values.copy()
    holed[[7, 9]] = [np.nan, np.inf]
    np.save(path / "nan.npy", holed)
    assert run("encode topk:ratio=0.1 values.npy frame.tithe", path).returncode == 0
    changed = bytearray((path / "frame.tithe").read_bytes())
    changed[200] ^= 4
    (path / "changed.tithe").write_bytes(changed)
    for name in ("topk_concat.bin", "flag_non_finite.bin"):
        (path / name).write_bytes((ROOT / "tests/golden" / name).read_bytes())
    return path


@pytest.mark.parametrize("name", CASES)
def test_output_matches_the_golden_files(name, folder):
    case = CASES[name]
    done = run(case.line, folder)
    got = f"$ tithe {case.line}\nexit {done.returncode}\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}"
    for pattern, instead in case.masks.items():
        got = re.sub(pattern, instead, got)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TITHE_REWRITE_GOLDEN") == "1":
        path.write_text(got)
    assert got == path.read_text(), f"{path.name} differs; TITHE_REWRITE_GOLDEN=1 writes it anew"
    if "--json" in shlex.split(case.line):
        json.loads(done.stdout)


def test_every_golden_file_belongs_to_a_case():
    assert {p.stem for p in GOLDEN.glob("*")} == set(CASES)


def test_every_verb_has_help_a_section_and_json(folder):
    verbs = re.findall(r"^TITHE_VERB\((\w+)\)", (ROOT / "apps/tithe/verbs.def").read_text(), re.MULTILINE)
    document = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("cli*.md"))
    assert verbs
    for verb in (v.replace("_", " ") for v in verbs):
        helped = run(f"{verb} --help", folder)
        assert helped.returncode == 0
        assert "--json" in helped.stdout
        assert f"\n## {verb}\n" in document


@pytest.mark.parametrize("spec", SPECS)
def test_decode_returns_the_encoded_values_without_the_residual(spec, folder):
    report = json.loads(run(f"encode {spec} values.npy there.tithe --json", folder).stdout)
    assert run("decode there.tithe back.npy", folder).returncode == 0
    assert run("decode there.tithe back.f32", folder).returncode == 0
    values, back = np.fromfile(folder / "values.f32", "<f4"), np.load(folder / "back.npy")
    assert back.dtype == np.dtype("<f4")
    assert back.shape == values.shape
    assert (back.tobytes()) == (folder / "back.f32").read_bytes()
    error = np.linalg.norm((values - back).astype("f8")) / np.linalg.norm(values.astype("f8"))
    assert math.isclose(error, report["relative_error"], rel_tol=1e-5, abs_tol=1e-9)
    assert report["frame_bytes"] == report["payload_bytes"] + 64 == (folder / "there.tithe").stat().st_size


def test_refused_output_keeps_the_old_file(folder):
    (folder / "kept.npy").write_text("as it was")
    assert run("decode changed.tithe kept.npy", folder).returncode == 1
    assert (folder / "kept.npy").read_text() == "as it was"
    assert not list(folder.glob("kept.npy.*"))


def test_a_frame_cannot_make_it_allocate(folder):
    """A sealed frame of 68 bytes that claims 2^40 values of a sparse codec."""
    frame = bytearray((ROOT / "tests/golden/topk_none.bin").read_bytes())
    struct.pack_into("<Q", frame, 32, 1 << 40)
    sys.path.insert(0, str(ROOT / "tests/second_decoder"))
    from tithe_format import checksum

    struct.pack_into("<Q", frame, 56, checksum(bytes(frame)))
    (folder / "claims.tithe").write_bytes(frame)
    done = run("decode claims.tithe out.npy", folder)
    assert done.returncode == 1
    assert "--max-values" in done.stderr


def test_unsupported_target_is_refused_with_the_list(folder):
    done = run("encode onebit values.npy refused.tithe", folder, env=os.environ | {"TITHE_TARGET": "avx9"})
    assert done.returncode == 2
    assert re.fullmatch(r"tithe: TITHE_TARGET: unknown target 'avx9': this machine has [a-z0-9_, ]+\n", done.stderr)
    assert not (folder / "refused.tithe").exists()


@pytest.mark.parametrize("spec", ["onebit", "topk:ratio=0.3", "inceptionn", "inceptionn:layout=burst", "dgc", "sign"])
def test_every_target_writes_the_same_bytes(spec, folder):
    refusal = run("codecs", folder, env=os.environ | {"TITHE_TARGET": "avx9"}).stderr
    targets = refusal.split("this machine has ")[1].strip().split(", ")
    assert targets
    frames = set()
    for target in targets:
        held = os.environ | {"TITHE_TARGET": target}
        assert run(f"encode {spec} values.npy of_target.tithe", folder, env=held).returncode == 0
        assert run("decode of_target.tithe of_target.f32", folder, env=held).returncode == 0
        frames.add((folder / "of_target.tithe").read_bytes() + (folder / "of_target.f32").read_bytes())
        assert f"vectors: {target.upper()}" in run("doctor", folder, env=held).stdout
    assert len(frames) == 1


def test_doctor_lists_present_parts_and_cures_for_missing_ones(folder):
    found = json.loads(run("doctor --json", folder).stdout)
    names = [f["name"] for f in found["findings"]]
    assert names == ["processor", "ucx", "tcp", "launcher", "gpu", "namespaces", "python"]
    for finding in found["findings"]:
        assert finding["what"]
        assert finding["there"] or finding["cure"]
        assert (finding["name"] in found["missing"]) != finding["there"]
    assert found["findings"][0]["details"]["targets"]
    text = run("doctor", folder).stdout.splitlines()
    assert [line.split()[1] for line in text[1:] if not line.startswith(" ")] == names


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "this process has no rank"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
            "meet at 127.0.0.1:29500",
        ),
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "TITHE_FILE": "/tmp/a"},
            "rank 1 of 4, which meet by the file /tmp/a",
        ),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "MASTER_ADDR is not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "no-such.invalid", "MASTER_PORT": "1"}, "clusterIP: None"),
        ({"TITHE_TOKEN_FILE": "open.key"}, "defaultMode: 0600"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "a pod of Kubernetes"),
    ],
)
def test_doctor_reads_the_launchers_variables(folder, variables, expected):
    (folder / "open.key").write_text("00" * 16)
    (folder / "open.key").chmod(0o644)
    found = json.loads(run("doctor --json", folder, env={"PATH": os.environ["PATH"], **variables}).stdout)["findings"]
    finding = next(f for f in found if f["name"] == "launcher")
    assert expected in finding["what"] + finding.get("cure", "")


def test_bench_codec_fields(folder):
    got = json.loads(run("bench codec topk --n 50000 --rounds 3 --json", folder).stdout)
    assert got["n"] == 50000
    assert got["encode_gbs"] > 0
    assert got["decode_gbs"] > 0
    assert got["encode_vs_reference"] > 0
    assert got["decode_vs_reference"] > 0
    assert "r += g" in got["reference"]


def report(line, folder):
    done = run(f"{line} --json", folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("strategy", ["ring", "server", "aggregator", "gather", "tree"])
@pytest.mark.parametrize("codec", ["fp32", "bf16", "onebit", "topk", "dgc", "dragonn", "qtopk"])
def test_replay_of_one_tensor_checks_the_laws(codec, strategy, folder):
    got = report(f"{ONE_TENSOR} --ranks 4 --codec {codec} --strategy {strategy} --n 30011 --steps 2", folder)
    assert got["identical"] is True
    assert got["ledger_exact"] is (codec != "onebit")
    assert got["ledger_error"] < 1e-6
    assert got["apart"] is None
    assert got["step_ms"] > 0
    assert got["bytes_sent_per_rank"] > 0


def test_replay_sees_losses_without_feedback(folder):
    got = report(f"{ONE_TENSOR} --ranks 2 --codec topk:feedback=none --n 5000 --steps 2", folder)
    assert got["identical"] is True
    assert got["ledger_exact"] is False
    assert got["ledger_error"] > 0.1
    got = report(f"{ONE_TENSOR} --ranks 2 --codec topk:feedback=momentum --n 5000 --steps 2", folder)
    assert got["ledger_exact"] is None


def test_a_server_adds_nothing_to_the_ledger(folder):
    got = report(f"{ONE_TENSOR} --ranks 3 --servers 1 --codec topk --strategy server --n 30011 --steps 2", folder)
    assert got["identical"] is True
    assert got["ledger_exact"] is True


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_as_processes_check_the_laws(ranks, folder):
    line = f"replay --transport ucx --ranks {ranks} --codec topk --strategy gather --n 30011 --steps 3"
    got = report(line, folder)
    assert got["identical"] is True
    assert got["ledger_exact"] is True


def children_of(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(true, seconds=30):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def replay_on_ucx(**options):
    """Runs the command on three ranks. Yields the command and the processes of its ranks."""
    line = [TITHE, "replay", "--ranks", "3", "--transport", "ucx", "--n", "100000", "--steps", "100000"]
    command = subprocess.Popen(line, **options)
    wait_until(lambda: len(children_of(command.pid)) == 3)
    time.sleep(1)
    return command, children_of(command.pid)


def test_dead_rank_on_ucx_is_named(folder):
    command, ranks = replay_on_ucx(stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    os.kill(ranks[1], signal.SIGKILL)
    _, report = command.communicate(timeout=300)
    assert command.returncode == 1
    assert "rank 1" in report
    wait_until(lambda: all(gone(pid) for pid in ranks))


def test_killed_replay_on_ucx_leaves_no_process(folder):
    command, ranks = replay_on_ucx(stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    command.kill()
    command.wait()
    wait_until(lambda: all(gone(pid) for pid in ranks))
