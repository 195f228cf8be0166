# SPDX-License-Identifier: Apache-2.0
"""tithe lang: the output of its verbs, their refusals, and all programs of codecs/."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))
MINUTES = 300  # the limit on a busy machine; an idle machine needs a few seconds
PROGRAMS = sorted(path.relative_to(ROOT) for path in (ROOT / "codecs").rglob("*.codec"))


def lang(verb, *words, folder=ROOT):
    return subprocess.run(
        [TITHE, "lang", verb, *map(str, words)],
        cwd=folder,
        env={**os.environ, "TITHE_CXX": "none"},
        capture_output=True,
        text=True,
        timeout=MINUTES,
        check=False,
    )


def test_new_writes_a_valid_codec_that_passes_every_test(tmp_path):
    assert lang("new", "mine", folder=tmp_path).returncode == 0
    done = lang("check", "mine.codec", folder=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("mine.codec: ok, mine@")
    assert "\nNO " not in lang("test", "mine.codec", folder=tmp_path).stdout


def test_new_refuses_odd_names_and_keeps_existing_files(tmp_path):
    for name in ("Mine", "my codec", "../mine", "7up", ""):
        done = lang("new", name, folder=tmp_path)
        assert done.returncode != 0
        assert "a codec's name must consist of lower-case letters" in done.stderr
    (tmp_path / "mine.codec").write_text("precious")
    done = lang("new", "mine", folder=tmp_path)
    assert done.returncode != 0
    assert "mine.codec exists already" in done.stderr
    assert (tmp_path / "mine.codec").read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["mine.codec"]


def test_check_reports_several_errors_of_several_files(tmp_path):
    (tmp_path / "a.codec").write_text('codec a "d"\nencode\n  u = y\n  v = z\nsend\n  w: f32[] = x\ndecode\n  w\n')
    (tmp_path / "b.codec").write_text('codec b "d"\nphase p by mean\nsend\n  w: f32\ndecode\n  w\n')
    done = lang("check", "a.codec", "b.codec", "--json", folder=tmp_path)
    assert done.returncode != 0
    files = json.loads(done.stdout)["files"]
    assert [(p["line"], p["column"]) for p in files[0]["problems"]] == [(3, 7), (4, 7)]
    assert files[1]["problems"][0]["what"] == "unknown law 'mean'"
    assert files[1]["problems"][0]["help"]


def test_two_files_with_the_same_name_are_two_codecs(tmp_path):
    for folder, doc in (("a", "one"), ("b", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.codec").write_text(f'codec mine "{doc}"\nsend\n  v: f32[] = x\ndecode\n  v\n')
    names = [lang("check", tmp_path / folder / "mine.codec").stdout.split()[2] for folder in "ab"]
    assert all(name.startswith("mine@") for name in names)
    assert names[0] != names[1]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_every_program_of_the_tree_passes(program):
    """For example qsgd, whose residual would grow without limit under norm=l2 and few bits."""
    done = lang("test", program)
    assert done.returncode == 0, done.stdout
    assert "ok   honest" in done.stdout
    assert "ok   faithful" in done.stdout


def test_settings_with_growing_residuals_are_refused(tmp_path):
    text = (ROOT / "codecs/qsgd.codec").read_text()
    (tmp_path / "mine.codec").write_text(text.replace("norm: one of max, l2", "norm: one of l2, max"))
    done = lang("test", "mine.codec", folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "add feedback=none, or set bits=6 or norm=max or bucket=128" in done.stdout


def test_broken_law_is_reported(tmp_path):
    text = """codec wrong "claims what it does not do"
claim exact
claim contraction 0.001
block 64

encode
  size = mean(abs(x))

send
  size: f32
  up: u1[] = x > 0

decode
  if up then size else -size
"""
    (tmp_path / "wrong.codec").write_text(text)
    done = lang("test", "wrong.codec", folder=tmp_path)
    assert done.returncode != 0
    assert "NO   contraction" in done.stdout
    assert "NO   faithful" in done.stdout


LEVELS = """\
codec levels "15 levels up to the largest value"
block 256

encode
  size  = largest(abs(x))
  level = clamp(round(divide(x, size, 0) * 7), -7, 7)

send
  size: f32 where not signbit(size)
  code: u4[] = u32(level + 7) where code <= 14

decode
  (f32(code) - 7) * (size / 7)
"""
DECODED = "(f32(code) - 7) * (size / 7)"
OCTAVES = """\
codec octave "an exponent, and levels under it"
block 64

encode
  octave = largest(bits(x) >> 23 & 0xff)
  scale  = from_bits(clamp(octave + 1, 4, 254) << 23)
  level  = clamp(round(divide(x, scale, 0) * 7), -7, 7)

send
  octave: u8{}
  code: u4[] = u32(level + 7) where code <= 14

decode
  (f32(code) - 7) * (from_bits(clamp(octave + 1, 4, 255) << 23) / 7)
"""
WRONG = {
    "missing_where": (OCTAVES.format(""), {"sound"}),
    "three_times": (LEVELS.replace(DECODED, DECODED + " * 3"), {"scaled", "settled"}),
    "a_third": (LEVELS.replace(DECODED, DECODED + " / 3"), {"scaled"}),
    "sign_flipped": (LEVELS.replace(DECODED, "-" + DECODED), {"scaled", "settled"}),
    "level_off_by_one": (LEVELS.replace(DECODED, "(f32(code) - 6) * (size / 7)"), {"centred"}),
    "code_off_by_one": (
        LEVELS.replace("level + 7) where code <= 14", "level + 8) where code >= 1"),
        {"centred"},
    ),
    "bias": (LEVELS.replace(DECODED, DECODED + " + size * 0.0625"), {"centred"}),
    "rounded_down": (LEVELS.replace("round(", "floor("), {"centred"}),
    "never_sent": (LEVELS.replace("divide(x,", "divide(max(x, 0),"), {"centred", "settled"}),
}


def broken(done):
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("NO ")}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_codec_without_claims_is_found(mistake, tmp_path):
    text, laws = WRONG[mistake]
    (tmp_path / "wrong.codec").write_text(text)
    assert lang("check", "wrong.codec", folder=tmp_path).returncode == 0
    done = lang("test", "wrong.codec", folder=tmp_path)
    assert done.returncode != 0, done.stdout
    assert laws <= broken(done), done.stdout
    assert "the loss is at most the claimed loss" not in done.stdout


@pytest.mark.parametrize("text", [LEVELS, OCTAVES.format(" where octave <= 254").replace("4, 255", "4, 254")])
def test_the_same_codecs_without_the_mistake_pass(text, tmp_path):
    (tmp_path / "right.codec").write_text(text)
    done = lang("test", "right.codec", folder=tmp_path)
    assert done.returncode == 0, done.stdout


def test_codec_without_claims_gets_the_measured_values(tmp_path):
    (tmp_path / "levels.codec").write_text(LEVELS)
    done = lang("test", "levels.codec", folder=tmp_path)
    assert "\nnothing claimed; bell-shaped values lose 0.0" in done.stdout
    measured = json.loads(lang("test", "levels.codec", "--json", folder=tmp_path).stdout)["measured"]
    assert measured["claims"] == []
    assert [v["kind"] for v in measured["values"]] == ["bell-shaped", "heavy-tailed"]
    assert 0 < measured["values"][0]["lost"] < 0.05
    assert 0 < measured["feedback"]["left"] < 1


def test_a_parameter_of_four_billion_values_is_counted_before_it_is_listed(tmp_path):
    text = 'codec big "d"\nparam k: int = 0 in 0 .. 4294967295 "k"\nsend\n  v: f32[] = x + f32(k)\ndecode\n  v\n'
    (tmp_path / "big.codec").write_text(text)
    done = lang("check", "big.codec", folder=tmp_path)
    assert done.returncode != 0
    assert "'k' has 4294967296 values" in done.stdout


def test_missing_kernels_or_cpp_have_a_reason():
    for what, program, reason in (
        ("--cuda", "scalecom", "a list that is agreed on in phases"),
        ("--cpp", "adacomp", "payloads of different lengths"),
        ("--cpp", "scalecom", "sends indices, for which the library has kernels"),
    ):
        done = lang("show", f"codecs/{program}.codec", what)
        assert done.returncode != 0
        assert reason in done.stderr, done.stderr


def test_phases_are_shown_as_kernels_one_by_one():
    done = lang("show", "codecs/qsgd_shared.codec", "--cuda")
    assert done.returncode == 0, done.stderr
    for function in ("tithe_norms_encode", "tithe_levels_encode", "tithe_levels_decode"):
        assert f"API void {function}(" in done.stdout
    assert "tithe_norms_decode" not in done.stdout


def test_phases_are_shown_as_cpp_one_by_one(tmp_path):
    done = lang("show", "codecs/qsgd_shared.codec", "--cpp")
    assert done.returncode == 0, done.stderr
    assert "namespace p0 {" in done.stdout and "namespace p1 {" in done.stdout
    text = """\
codec mixed "the second phase alone has C++"
block 64

phase goes by leader
send
  goes: places[] = abs(x) > 1

phase signs by decode
send
  up: u1[] = goes and x > 0

decode
  if up then 1.0 else 0.0
"""
    (tmp_path / "mixed.codec").write_text(text)
    done = lang("show", "mixed.codec", "--cpp", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("// Without goes: tithe generates C++ for payloads of different lengths")
    assert "namespace p0 {" in done.stdout and "namespace p1 {" not in done.stdout
