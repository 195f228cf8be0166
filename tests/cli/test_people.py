# SPDX-License-Identifier: Apache-2.0
"""The interactive side of the command: doctor's checks, suggestions for misspelled names, completion, the manual page,
progress."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))


def run(line, folder, **options):
    return subprocess.run(
        [TITHE, *shlex.split(line)], cwd=folder, capture_output=True, text=True, timeout=300, check=False, **options
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "values.npy").write_bytes(b"")
    return tmp_path


WRONG = {
    "enc": "did you mean 'encode'",
    "bench codek": "did you mean 'codec'",
    "help bench codek": "did you mean 'bench codec'",
    "encode --sede 3 fp32 values.npy out": "did you mean '--seed'",
    "replay --n 10 --transport uxc": "did you mean 'ucx'",
    "replay --n 10 --transport ucx:device=eth0": "did you mean 'devices'",
    "replay --codec topk ratio=0.1": "topk:ratio=0.1",
    "replay bf16": "--codec bf16",
    "replay --steps 3 gather": "write 'gather' after --strategy",
    "bench codec dgc momentum=1": "unexpected|expected",  # not a parameter of dgc: no suggestion
    "encode qtopk feedback=none values.npy out": "qtopk:feedback=none",
}


@pytest.mark.parametrize("line", WRONG)
def test_misspelled_names_get_suggestions(line, folder):
    done = run(line, folder)
    assert done.returncode == 2
    assert re.search(WRONG[line], done.stderr), done.stderr
    assert done.stderr.count("\n") == 1


def test_existing_file_wins_over_a_parameter(folder):
    (folder / "ratio=0.5").write_bytes(b"\0" * 400)
    assert run("encode topk ratio=0.5 out", folder).returncode == 0


def test_doctor_tries_ucx_in_the_current_environment(folder):
    """UCX_TLS=rc on a machine without RDMA must not be "ok", and a session's error must name the variable."""

    def ucx(**variables):
        done = run("doctor --json", folder, env=os.environ | variables)
        return next(f for f in json.loads(done.stdout)["findings"] if f["name"] == "ucx")

    whole = ucx(UCX_TLS="all", UCX_NET_DEVICES="all")
    assert whole["there"]
    assert whole["details"]["tried"] is True
    nowhere = ucx(UCX_TLS="tcp", UCX_NET_DEVICES="nowhere0")
    assert not nowhere["there"]
    assert "UCX_NET_DEVICES=nowhere0" in nowhere["cure"]
    alone = ucx(UCX_TLS="posix")  # without a network
    assert not alone["there"]
    assert "other hosts" in alone["cure"]


def test_doctor_loads_the_module_instead_of_a_folder_of_that_name(folder, tmp_path):
    (tmp_path / "tithe").mkdir()  # importlib finds it as a namespace package
    interpreter = shlex.quote(sys.executable)
    done = run(f"doctor --json --python {interpreter}", tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    found = json.loads(done.stdout)["findings"][-1]
    assert found["name"] == "python"
    assert found["details"]["interpreter"] == sys.executable
    if not found["details"]["tithe"]:
        assert "_core" in found["details"]["error"]
    done = run(f"doctor --json --python {interpreter}", tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT / "python")})
    assert json.loads(done.stdout)["findings"][-1]["details"]["path"].endswith(".so")
    done = run("doctor --json --python ./nowhere", folder)
    assert "does not run" in json.loads(done.stdout)["findings"][-1]["what"]


def test_doctor_uses_the_python_next_to_its_own_file(folder, tmp_path):
    """A wheel's command, called from another folder, must not run PATH's python3, which may have neither torch nor
    tithe."""
    beside = tmp_path / "bin"
    beside.mkdir()
    shutil.copy(TITHE, beside / "tithe")
    (beside / "python").symlink_to(sys.executable)
    inactive = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(
        [beside / "tithe", "doctor", "--json"],
        cwd=folder,
        env=inactive,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert json.loads(done.stdout)["findings"][-1]["details"]["interpreter"] == str(beside / "python")


def test_the_table_of_codecs_fits_100_columns(folder):
    for line in ("codecs", "codecs thc", "codecs sign_majority"):
        for text in run(line, folder).stdout.splitlines():
            assert len(text) <= 100 or text.startswith("  "), text  # the text of a parameter may be longer


def test_every_codec_has_a_description(folder):
    names = [c["name"] for c in json.loads(run("codecs --json", folder).stdout)["codecs"]]
    assert len(names) > 25
    for name in names:
        report = json.loads(run(f"codecs {name} --json", folder).stdout)
        assert report["name"] == report["spec"] == name
        assert report["when"]
        assert report["studied"] or "not in the study" in run(f"codecs {name}", folder).stdout
        assert report["strategies"]


def test_codec_recommendations_match_the_page(folder):
    """The text must come from the page, and not from a codec's traits, which would suit topk to every optimizer."""
    page = (ROOT / "docs/start/choosing.md").read_text()
    columns, row = (re.search(rf"^\| {name} \|(.*)\|$", page, re.MULTILINE)[1] for name in ("codec", "`topk`"))
    report = json.loads(run("codecs topk --json", folder).stdout)
    cells = dict(zip((c.strip() for c in columns.split("|")), (c.strip() for c in row.split("|")), strict=True))
    assert report["studied"].pop("SGD 0.5, tuned rate") == "yes"
    assert report["studied"] == {name: text for name, text in cells.items() if text and name != "fp32's bytes"}
    have = report["when"].split(" (where ")[0]
    assert "`topk`" in re.search(rf"^\| {re.escape(have)} \|(.*)\|$", page, re.MULTILINE)[1]


def test_advice_is_for_the_settings_and_agrees_with_the_study(folder):
    """`tithe codecs eden:bits=3` must not name rows of the page with other settings of eden."""
    report = json.loads(run("codecs eden:bits=3 --json", folder).stdout)
    assert "plain SGD" not in report["when"]
    assert "torch's own AdamW (where 0.01 nats are little)" in report["when"]
    assert report["studied"]["AdamW"] == "yes"
    few = json.loads(run("codecs eden:bits=2 --json", folder).stdout)
    assert "AdamW" not in few["when"] and few["studied"]["AdamW"].startswith("no")
    assert run("codecs eden:bits=1.6", folder).stdout.count("at the defaults of eden:") == 1


def test_group_without_a_verb_gives_the_usage_error(folder):
    done = run("lang", folder)
    assert done.returncode == 2
    assert done.stderr == (
        "tithe: a verb is needed after tithe lang: check, test, show, new, format; see tithe lang --help\n"
    )
    assert run("bench", folder).stderr.startswith("tithe: a verb is needed after tithe bench: codec; see")
    assert run("", folder).stderr == "tithe: a verb is needed; see tithe help\n"


def test_every_option_and_verb_is_described_by_a_whole_phrase(folder):
    for verb in json.loads(run("help --json", folder).stdout)["verbs"]:
        for entry in [verb, *verb["arguments"], *verb["options"]]:
            assert not re.match(r"(of|that|so many|each|until|further) (?!policies|settings)", entry["doc"]), entry
        assert re.match(r"[a-z]+ ", verb["doc"]) and verb["doc"].split()[0] not in ("what", "the", "a", "all"), verb


def test_version(folder):
    assert re.fullmatch(r"tithe \d+\.\d+\.\d+\n", run("--version", folder).stdout)


def complete(folder, *words):
    """Returns bash's completions of the last word."""
    script = folder / "completion.bash"
    script.write_text(run("completion bash", folder).stdout)
    line = " ".join(shlex.quote(w) for w in ("tithe", *words))
    printed = "printf '%s\\n' \"${COMPREPLY[@]}\""
    code = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _tithe_words; {printed}"
    done = subprocess.run(["bash", "-c", code], cwd=folder, capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_verbs_options_names_and_files(folder):
    assert complete(folder, "enc") == ["encode"]
    assert complete(folder, "bench", "") == ["codec"]
    assert "--strategy" in complete(folder, "replay", "--")
    assert complete(folder, "replay", "--strategy", "r") == ["ring"]
    assert complete(folder, "replay", "--transport", "u") == ["ucx"]
    assert complete(folder, "lang", "t") == ["test"]
    assert "topk" in complete(folder, "encode", "to")
    assert "values.npy" in complete(folder, "decode", "val")
    assert complete(folder, "completion", "f") == ["fish"]


def needs(shell):
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell} here: apt-get install {shell}")


# zsh completes only for interactive input: Tab completes the word, Enter runs it, and a function prints the command.
ZSHRC = """
PS1='ready> ' PROMPT_EOL_MARK=''
setopt no_beep
autoload -U compinit
"""
ZSH = {
    "sourced": "compinit -u -D\nsource ./_tithe\n",
    "in fpath": "fpath=($PWD $fpath)\ncompinit -u -D\n",
}


def typed_in_zsh(folder, way, line):
    (folder / "_tithe").write_text(run("completion zsh", folder).stdout)
    (folder / ".zshrc").write_text(ZSHRC + ZSH[way] + 'tithe() { print -r -- "asked: $*!" }\n')
    ours, theirs = pty.openpty()
    environment = {**os.environ, "ZDOTDIR": str(folder), "TERM": "dumb"}
    shell = subprocess.Popen(["zsh", "-i"], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
                             start_new_session=True)  # fmt: skip
    os.close(theirs)
    output = b""
    try:
        for text, answer in (("", b"ready>"), (f"{line}\t\n", b"asked: [^!]*!")):
            os.write(ours, text.encode())
            deadline = time.monotonic() + 60
            while not re.search(answer, output):
                assert time.monotonic() < deadline and select.select([ours], [], [], 60)[0], output
                output += os.read(ours, 1000)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
    return re.search(rb"asked: ([^!]*)!", output)[1].decode()


@needs("zsh")
@pytest.mark.parametrize("way", ZSH)
def test_zsh_completes_verbs_options_names_and_files(folder, way):
    for line, whole in {
        "tithe enc": "encode",
        "tithe bench co": "bench codec",
        "tithe replay --strat": "replay --strategy",
        "tithe replay --strategy r": "replay --strategy ring",
        "tithe encode qto": "encode qtopk",
        "tithe decode val": "decode values.npy",
    }.items():
        assert typed_in_zsh(folder, way, line).rstrip() == whole


@needs("fish")
def test_fish_completes_verbs_options_names_and_files(folder):
    (folder / "tithe.fish").write_text(run("completion fish", folder).stdout)

    def offered(line):
        code = f"source tithe.fish; complete -C {shlex.quote(line)}"
        done = subprocess.run(["fish", "--no-config", "-c", code], cwd=folder, capture_output=True, text=True,
                              check=True, timeout=300)  # fmt: skip
        assert done.stderr == ""
        return {word.split("\t")[0] for word in done.stdout.splitlines()}

    assert offered("tithe enc") == {"encode"}
    assert offered("tithe bench ") >= {"codec"}
    assert "--strategy" in offered("tithe replay --")
    assert offered("tithe replay --strategy r") == {"ring"}
    assert offered("tithe replay --transport u") == {"ucx"}
    assert "topk" in offered("tithe encode to")
    assert "values.npy" in offered("tithe decode val")
    assert offered("tithe completion f") == {"fish"}


def test_every_verb_and_option_is_completed_and_in_the_manual(folder):
    verbs = json.loads(run("help --json", folder).stdout)["verbs"]
    page = run("man", folder).stdout.replace("\\-", "-")
    fish = run("completion fish", folder).stdout
    assert page.startswith(".TH TITHE 1")
    for verb in verbs:
        assert f".SS tithe {verb['verb']}" in page
        offered = complete(folder, *verb["verb"].split(), "--")
        for option in verb["options"]:
            assert option["name"] in offered
            assert option["doc"], (verb["verb"], option["name"])
            assert f" -l {option['name'][2:]}" in fish
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=run("man", folder).stdout, capture_output=True,
                              text=True, check=True, timeout=300)  # fmt: skip
        assert done.stderr == ""


def test_progress_line_appears_only_on_a_terminal(folder):
    line = [TITHE, "bench", "codec", "topk", "--n", "4000000", "--rounds", "100000"]
    ours, theirs = pty.openpty()
    command = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    output = b""
    deadline = time.monotonic() + 60
    while b"pairs" not in output and time.monotonic() < deadline:
        output += os.read(ours, 1000)
    command.send_signal(signal.SIGINT)
    while True:
        try:
            output += os.read(ours, 1000)
        except OSError:  # the other end is closed
            break
    command.wait(timeout=300)
    os.close(ours)
    assert re.search(rb"tithe bench codec: \d+ of 100000 pairs, \d+ s", output), output
    assert output.endswith(b"\r\x1b[Ktithe: interrupted\r\n"), output
    command = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(4)
    command.send_signal(signal.SIGINT)
    assert command.communicate(timeout=300)[1] == b"tithe: interrupted\n"
