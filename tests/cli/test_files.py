# SPDX-License-Identifier: Apache-2.0
"""The files of build/tithe: devices, pipes, links, endless inputs, names that are not valid text, Ctrl-C."""

import json
import os
import resource
import shlex
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))
VALUES = np.arange(25, dtype="<f4").tobytes()


def run(words, folder, **options):
    words = shlex.split(words) if isinstance(words, str) else words
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([TITHE, *words], cwd=folder, timeout=300, check=False, **options)


def refused(done, code):
    """Checks for one line on stderr, and the exit code of docs/reference/cli.md."""
    assert done.returncode == code, done.stderr
    error = done.stderr.decode(errors="replace")
    assert error.startswith("tithe: ")
    assert error.count("\n") == 1
    return error


def little_memory():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "values.f32").write_bytes(VALUES)
    return tmp_path


def npy(shape, order="False", data=VALUES):
    header = f"{{'descr': '<f4', 'fortran_order': {order}, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + data


def claim(golden, values):
    """Makes a sealed frame whose header has another number of values than its payload."""
    sys.path.insert(0, str(ROOT / "tests/second_decoder"))
    from tithe_format import checksum

    frame = bytearray((ROOT / "tests/golden" / golden).read_bytes())
    struct.pack_into("<Q", frame, 32, values)
    struct.pack_into("<Q", frame, 56, checksum(bytes(frame)))
    return bytes(frame)


# ---- writing


def test_device_output_is_written_in_place_and_errors_are_reported(folder):
    path = folder / "full"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    except PermissionError:  # without root: the system's own node, which no other user could destroy either
        path = Path("/dev/full")
    for line in (f"encode fp32 values.f32 {path}", f"encode fp32 values.f32 {path} --json"):
        assert "No space left on device" in refused(run(line, folder), 1)
        assert stat.S_ISCHR(path.lstat().st_mode)


def test_pipe_output_gets_the_bytes(folder):
    os.mkfifo(folder / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((folder / "pipe").read_bytes()))
    reader.start()
    assert run("encode fp32 values.f32 pipe", folder).returncode == 0
    reader.join()
    assert stat.S_ISFIFO((folder / "pipe").lstat().st_mode)
    assert run("encode fp32 values.f32 file", folder).returncode == 0
    assert got == [(folder / "file").read_bytes()]


def test_closed_pipe_is_an_error(folder):
    os.mkfifo(folder / "pipe")
    np.zeros(1 << 20, "<f4").tofile(folder / "many.f32")
    reader = threading.Thread(target=lambda: os.close(os.open(folder / "pipe", os.O_RDONLY)))
    reader.start()
    assert "Broken pipe" in refused(run("encode fp32 many.f32 pipe", folder), 1)
    reader.join()


def test_link_output_replaces_its_target_and_keeps_the_mode(folder):
    (folder / "there").mkdir()
    (folder / "there/real").write_text("old")
    (folder / "there/real").chmod(0o640)
    (folder / "second").symlink_to("there/real")
    (folder / "first").symlink_to(folder / "second")
    assert run("encode fp32 values.f32 first", folder).returncode == 0
    assert (folder / "first").is_symlink()
    assert (folder / "second").is_symlink()
    assert (folder / "there/real").stat().st_size == 164
    assert stat.S_IMODE((folder / "there/real").stat().st_mode) == 0o640
    assert os.listdir(folder / "there") == ["real"]


def test_dangling_link_creates_its_target(folder):
    (folder / "there").mkdir()
    (folder / "link").symlink_to("there/new")
    assert run("encode fp32 values.f32 link", folder).returncode == 0
    assert (folder / "link").is_symlink()
    assert (folder / "there/new").stat().st_size == 164
    (folder / "round").symlink_to("round")
    refused(run("encode fp32 values.f32 round", folder), 1)


def test_failed_print_is_a_failure(folder):
    with open("/dev/full", "w") as full:
        for line in ("codecs", "codecs --json", "inspect values.f32"):
            assert "standard output" in refused(run(line, folder, stdout=full), 1)


# ---- reading


def test_endless_input_is_refused(folder):
    for line in ("inspect /dev/zero", "encode fp32 /dev/zero out", "decode /dev/zero out"):
        error = refused(run(f"{line} --max-values 1000", folder), 1)
        assert "--max-values" in error
    assert "--max-values" in refused(run("inspect --max-values 10 values.f32", folder), 1)
    assert not (folder / "out").exists()


def test_standard_input_can_be_read(folder):
    assert run("encode fp32 /dev/stdin out", folder, input=VALUES).returncode == 0
    assert (folder / "out").stat().st_size == 164
    assert "--max-values" in refused(run("inspect --max-values 7 /dev/stdin", folder, input=bytes(1 << 20)), 1)


def test_a_dash_is_standard_input_and_output_and_the_summary_goes_to_stderr(folder):
    """A summary on standard output would follow the frame."""
    printed = run("encode topk:ratio=0.5,indices=delta values.f32 file", folder).stdout
    frame = (folder / "file").read_bytes()
    for out in ("-", "/dev/stdout", "/dev/fd/1"):
        done = run(f"encode topk:ratio=0.5,indices=delta - {out}", folder, input=VALUES)
        assert (done.returncode, done.stdout) == (0, frame)
        assert done.stderr == printed.replace(b"file:", out.encode() + b":")
    assert run("inspect -", folder, input=frame).stdout == run("inspect file", folder).stdout
    assert run("inspect -", folder, input=VALUES).stdout == run("inspect values.f32", folder).stdout
    done = run("decode - -", folder, input=frame)
    run("decode file back.f32", folder)
    assert (done.returncode, done.stdout) == (0, (folder / "back.f32").read_bytes())
    assert not (folder / "-").exists()
    assert run("encode fp32 values.f32 ./-", folder).returncode == 0
    assert (folder / "-").stat().st_size == 164


def test_pipes_carry_only_the_frame(folder):
    line = "$TITHE encode fp32 - - <values.f32 2>1 | $TITHE decode - - 2>2 | cmp - values.f32"
    shell = ["bash", "-euo", "pipefail", "-c", line]
    done = subprocess.run(shell, cwd=folder, env=os.environ | {"TITHE": TITHE}, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (folder / "1").read_bytes().startswith(b"-: 25 values, 100 payload bytes")
    assert (folder / "2").read_bytes() == b"-: 25 values of fp32, from 100 payload bytes\n"


def test_redirected_standard_output_is_appended(folder):
    with open(folder / "both", "wb") as both:
        both.write(b"before")
        both.flush()
        assert run("encode fp32 values.f32 /dev/stdout", folder, stdout=both).returncode == 0
    run("encode fp32 values.f32 file", folder)
    assert (folder / "both").read_bytes() == b"before" + (folder / "file").read_bytes()


def test_json_report_goes_to_stderr_if_data_goes_to_stdout(folder):
    done = run("encode fp32 values.f32 - --json", folder)
    assert (done.returncode, len(done.stdout), json.loads(done.stderr)["out"]) == (0, 164, "-")
    done = run("encode fp32 nowhere - --json", folder)
    assert (done.returncode, done.stdout, json.loads(done.stderr)["error"]["code"]) == (1, b"", "io")


def test_standard_output_accepts_one_file(folder):
    line = "plan --model hdc --link 1gbit --ranks 2 --out - --html /dev/stdout"
    assert "only one file can be written" in refused(run(line, folder), 2)


def test_closed_standard_output_is_an_error(folder):
    np.zeros(1 << 20, "<f4").tofile(folder / "many.f32")
    line = "$TITHE encode fp32 many.f32 - | head -c 10"
    shell = ["bash", "-uo", "pipefail", "-c", line]
    done = subprocess.run(shell, cwd=folder, env=os.environ | {"TITHE": TITHE}, capture_output=True, check=False)
    assert (done.returncode, len(done.stdout), done.stderr) == (1, 10, b"tithe: -: cannot write: Broken pipe\n")


def test_plan_can_be_piped(folder):
    done = run("plan --model hdc --link 1gbit --ranks 2 -o -", folder)
    assert done.returncode == 0 and json.loads(done.stdout)["rules"] and b"step " in done.stderr
    simulated = run("simulate --model hdc --link 1gbit --ranks 2 --choices -", folder, input=done.stdout)
    assert simulated.returncode == 0, simulated.stderr


# A frame of a few bytes can encode any number of zeros, or be flagged as not finite.
@pytest.mark.parametrize("golden", ["topk_none.bin", "threshold_none.bin", "flag_non_finite.bin"])
def test_a_small_frame_that_claims_2_to_28_values_allocates_nothing(golden, folder):
    (folder / "claims.tithe").write_bytes(claim(golden, 1 << 28))
    error = refused(run("decode claims.tithe out.npy", folder, preexec_fn=little_memory), 1)
    assert "268435456 values" in error
    assert "--max-values" in error
    done = run("inspect claims.tithe", folder, preexec_fn=little_memory)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"--max-values" in done.stdout
    # A higher limit without the memory gives an error text.
    done = run("decode claims.tithe out.npy --max-values 1000000000", folder, preexec_fn=little_memory)
    assert "not enough memory" in refused(done, 1)


@pytest.mark.parametrize("verb", ["decode claims.tithe out.npy", "inspect claims.tithe"])
@pytest.mark.parametrize("values", [(1 << 64) - 1, 1 << 63, 1 << 41])
def test_a_frame_of_nearly_2_to_64_values_is_refused_for_every_codec(verb, values, folder):
    names = sorted(p.name for p in (ROOT / "tests/golden").glob("*_one.bin"))
    assert len(names) > 25
    for golden in names:
        (folder / "claims.tithe").write_bytes(claim(golden, values))
        done = run(f"{verb} --max-values {1 << 40}", folder)
        assert done.returncode in (0, 1), (golden, done.stderr)
        assert b"--max-values" in done.stdout + done.stderr or b"exchanges" in done.stdout + done.stderr
        assert not (folder / "out.npy").exists()


@pytest.mark.parametrize(
    "shape",
    ["(-25,)", "(2.5,)", "(25)", "25", "(,)", "(5,,5)", "(5 5)", "((25,),)", "(25,", "(18446744073709551616,)",
     "(4294967296, 4294967296, 25)", "(18446744073709551615, 25)", "(1e1,)", "(0x19,)", "(24,)", "()"],
)  # fmt: skip
def test_invalid_shape_is_refused(shape, folder):
    (folder / "shape.npy").write_bytes(npy(shape))
    assert "shape" in refused(run("inspect shape.npy", folder), 2)


def test_numpy_shape_syntax_is_read(folder):
    for shape in ((25,), (5, 5), (5, 5, 1), (1, 25)):
        (folder / "shape.npy").write_bytes(npy(str(shape)))
        assert json.loads(run("inspect shape.npy --json", folder).stdout)["values"]["count"] == 25
    (folder / "shape.npy").write_bytes(npy("()", data=VALUES[:4]))
    assert json.loads(run("inspect shape.npy --json", folder).stdout)["values"]["count"] == 1
    (folder / "shape.npy").write_bytes(npy("(25,)", order="Perhaps"))
    refused(run("inspect shape.npy", folder), 2)


# ---- odd arguments


ODD = [b"\xff", b"out\xfe\xff", b"\xed\xa0\x80", "é".encode("latin-1")]
ODD_LINES = ["{}", "codecs {}", "inspect {}", "inspect --{} values.f32", "encode {} values.f32 out", "decode {} out",
             "encode fp32 values.f32 out --seed {}", "encode topk:ratio={} values.f32 out",
             "replay --n 10 --strategy {}", "bench codec {}"]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("line", ODD_LINES)
def test_json_output_is_valid_for_non_utf8_arguments(odd, line, folder):
    words = [word.replace(b"{}", odd) for word in line.encode().split()]
    done = run([*words, b"--json"], folder)
    refused(done, done.returncode)
    assert done.returncode in (1, 2)
    assert json.loads(done.stdout)["error"]["what"]


def test_non_utf8_file_name_is_accepted(folder):
    done = run([b"encode", b"fp32", b"values.f32", b"out\xff", b"--json"], folder)
    assert done.returncode == 0
    assert json.loads(done.stdout)["out"] == "out\ufffd"
    assert os.path.exists(os.fsencode(folder) + b"/out\xff")


WRONG = {
    2: ["", "bench", "bench codec", "replay --n 10 extra", "codecs extra", "doctor extra", "encode", "encode fp32",
        "encode fp32 values.f32", "encode '' values.f32 out", "encode fp32 '' out", "encode fp32 values.f32 ''",
        "decode values.f32", "decode '' out", "inspect", "inspect ''", "inspect values.f32 values.f32",
        "encode fp32 values.f32 out --seed -1", "encode fp32 values.f32 out --seed 18446744073709551616",
        "encode fp32 values.f32 out --seed 1.5", "inspect --max-values -1 values.f32",
        "inspect --max-values 1e3 values.f32", "inspect --max-values 99999999999999999999 values.f32",
        "inspect --max-values", "bench codec fp32 --n 0", "bench codec fp32 --n -1",
        "bench codec fp32 --n 18446744073709551615", "bench codec fp32 --threads 0", "bench codec fp32 --rounds 0",
        "replay --n 18446744073709551615", "replay --n -1", "replay --n 10 --ranks 0", "replay --n 10 --ranks -1",
        "replay --n 10 --steps 0", "replay --n 10 --lanes -1", "replay --n 10 --transport carrier",
        "replay --n 10 --codec ''", "replay", "replay --n 10 --model hdc",
        "encode topk:ratio=nan values.f32 out", "encode topk: values.f32 out", "encode topk:ratio values.f32 out",
        "--nonsense", "codecs --max-values 3", "encode fp32 odd.f32 out"],
    1: ["inspect folder", "inspect nowhere", "decode folder out", "decode empty out", "decode values.f32 out",
        "encode fp32 folder out", "encode fp32 nowhere out", "encode fp32 values.f32 folder",
        "encode fp32 values.f32 nowhere/out", "encode fp32 values.f32 values.f32/out", "decode frame folder",
        "encode powersgd values.f32 out", "bench codec thc"],
}  # fmt: skip


@pytest.mark.parametrize(("code", "line"), [(code, line) for code, lines in WRONG.items() for line in lines])
def test_each_verb_reports_odd_arguments_in_one_line(code, line, folder):
    (folder / "folder").mkdir()
    (folder / "empty").write_bytes(b"")
    (folder / "odd.f32").write_bytes(b"\0" * 7)
    assert run("encode fp32 values.f32 frame", folder).returncode == 0
    refused(run(line, folder), code)
    assert not (folder / "out").exists()


def test_unreadable_file_is_reported(folder):
    (folder / "secret").write_bytes(VALUES)
    (folder / "secret").chmod(0)
    drop = None
    if os.geteuid() == 0:  # root may read all files

        def drop():
            os.setgid(65534)
            os.setuid(65534)

        for path in (folder, *list(folder.parents)[:3]):
            path.chmod(path.stat().st_mode | 0o011)
    error = refused(run("inspect secret", folder, preexec_fn=drop), 1)
    assert "Permission denied" in error


# ---- Ctrl-C


@pytest.mark.parametrize("line", ["inspect pipe", "encode fp32 pipe out",
                                  "replay --transport loop --n 200000 --steps 100000",
                                  "replay --transport ucx --ranks 2 --n 200000 --steps 100000",
                                  "bench codec topk --rounds 100000"])  # fmt: skip
def test_ctrl_c_ends_every_verb_with_one_line(line, folder):
    os.mkfifo(folder / "pipe")
    keep = os.open(folder / "pipe", os.O_RDWR)  # so that the pipe opens and stays empty
    command = subprocess.Popen(
        [TITHE, *shlex.split(line)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    time.sleep(1.5)
    assert command.poll() is None
    os.killpg(command.pid, signal.SIGINT)  # as a terminal does: for the command and all processes that it started
    out, error = command.communicate(timeout=300)
    assert (command.returncode, out, error) == (-signal.SIGINT, b"", b"tithe: interrupted\n")
    os.close(keep)


def test_ctrl_c_while_writing_leaves_no_partial_file(folder):
    np.zeros(1 << 24, "<f4").tofile(folder / "many.f32")
    (folder / "out").write_text("as it was")
    command = subprocess.Popen([TITHE, "encode", "fp32", "many.f32", "out"], cwd=folder, stderr=subprocess.PIPE)
    while command.poll() is None and not list(folder.glob("out.*")):
        pass
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=300)
    assert not list(folder.glob("out.*"))
    if command.returncode != 0:  # the command may have finished before
        assert command.returncode == -signal.SIGINT
        assert (folder / "out").read_text() == "as it was"
