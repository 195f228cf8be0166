#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Properties of each framework integration: its tests, the accuracy of the default codec, and the time of a step beside
the framework's own all-reduce.

    python lab/bench/frameworks.py                                  the page of lab/results/frameworks.md, on stdout
    python lab/bench/frameworks.py --only ddp,jax_watch --steps 40 --write FILE
    python lab/bench/frameworks.py --check                          do the tests that the page names exist?

Four hosts are emulated by network namespaces behind shaped links (lab/hosts/hosts.py); HSDP and shares inside hosts
have two ranks on each. Every framework trains the same network on the same data (lab/bench/framework_jobs/), with its
own all-reduce and through tithe with the default codec, one after the other. A step's time is the median over the steps
of rank 0. Rows of frameworks that are not installed (tools/setup.sh jax keras mxnet deepspeed tensorflow) are empty.
Needs root, or user namespaces.
"""

import argparse
import ast
import datetime
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import hierarchy
from harness import ROOT, give, machine, rerun_in_namespaces

from hosts import SUBNET

HOSTS = 4
PROPERTIES = ("trains", "bit-equal", "overlaps", "resumes")
# Trainers that use a DistributedDataParallel share the tests of DDP.
OF_DDP = {
    "bit-equal": "torch_parity: test_parity_with_plain_ddp_over_100_iterations",
    "overlaps": "torch_trace: test_encoding_and_sending_run_during_backward",
}


class Row(NamedTuple):
    name: str
    own: str  # the framework's own all-reduce, the reference
    tests: dict[str, str]  # by property: names of tests/python/test_*.py, or the reason why there is none
    jobs: str = "torch"
    venv: str = ""
    per_host: int = 1
    apart: bool = False  # each way needs a process of its own
    ways: tuple[str, ...] = ("own", "tithe")
    environment: tuple[tuple[str, str], ...] = ()


def keras(backend: str, own: str) -> Row:
    tests = {
        "trains": "keras: test_fit_on_two_ranks_equals_one_process_with_all_data",
        "bit-equal": "keras: test_fit_equals_means_by_numpy_bit_for_bit",
        "overlaps": "no: the optimizer has all gradients at once",
        "resumes": "keras: test_session_resumes_from_a_saved_state_bit_identically",
    }
    venv = "tensorflow" if backend == "TensorFlow" else "keras"
    return Row(
        f"Keras on {backend}", own, tests, "keras", venv, apart=True, environment=(("KERAS_BACKEND", backend.lower()),)
    )


JAX_TESTS = {
    "trains": "jax: test_lossy_codec_gives_equal_bits_on_all_ranks_under_the_trees_names",
    "bit-equal": "jax: test_jitted_step_equals_one_process_bit_for_bit",
    "overlaps": "no: it stands behind backward; `watch` is for that",
    "resumes": "jax: test_session_resumes_from_a_saved_state_bit_identically",
}
ACCELERATE = "recipes_accelerate: test_accelerate_trains_through_tithe_and_resumes_lossy_states_bit_identically"
ROWS = {
    "ddp": Row(
        "DDP",
        "Gloo, fp32",
        {**OF_DDP, "trains": "examples: test_train_ddp",
         "resumes": "torch_resume: test_resume_is_bit_identical_at_default_options"},
        ways=("own", "bf16", "tithe"),
    ),
    "hsdp": Row(
        "HSDP, 4 x 2 ranks",
        "FSDP2's, Gloo",
        {
            "trains": "examples: test_train_hsdp",
            "bit-equal": "torch_sharded: test_four_ranks_are_bit_equal_to_fsdps_own_replicas",
            "overlaps": "torch_sharded: test_backward_continues_while_gradients_are_exchanged",
            "resumes": "torch_sharded_states: test_distributed_checkpoint_resumes_bit_identically",
        },
        per_host=2,
    ),
    "inside": Row(
        "shares inside hosts, 4 x 2 ranks",
        "DDP, Gloo",
        {
            "trains": "examples: test_train_inside",
            "bit-equal": "torch_inside: test_mean_covers_all_ranks_and_each_rank_exchanges_its_share",
            "overlaps": "torch_inside: test_exchange_between_hosts_begins_before_backward_ends",
            "resumes": "torch_inside: test_state_resumes_bit_identically_under_other_buckets",
        },
        per_host=2,
    ),
    "c10d": Row(
        "backend `tithe` of c10d",
        "Gloo",
        {
            "trains": "examples: test_average_c10d",
            "bit-equal": "torch_c10d: test_named_group_is_exact_with_fp32_and_delegates_the_rest_to_gloo",
            "overlaps": "no: where the loop waits for it",
            "resumes": "torch_c10d: test_saved_state_resumes_bit_identically",
        },
    ),
    "jax_average": Row("JAX, `average`", "gloo of jax.distributed", JAX_TESTS, "jax", "jax", apart=True),
    "jax_watch": Row(
        "JAX, `watch` and `finish`",
        "gloo of jax.distributed",
        {
            **JAX_TESTS,
            "trains": "jax: test_watch_and_finish_equal_average",
            "bit-equal": "jax: test_watch_and_finish_equal_average",
            "overlaps": "jax: test_last_layers_are_submitted_before_backward_reaches_the_first",
        },
        "jax", "jax", apart=True,
    ),
    "keras_torch": keras("torch", "DDP around the model"),
    "keras_jax": keras("JAX", "keras.distribution, gloo"),
    "keras_tensorflow": keras("TensorFlow", "MultiWorkerMirroredStrategy"),
    "mxnet": Row(
        "MXNet 1.9",
        "kvstore dist_sync, 4 servers",
        {
            "trains": "mxnet: test_the_example_trains",
            "bit-equal": "mxnet: test_trainer_and_kvstore_equal_one_process_bit_for_bit",
            "overlaps": "no: the Trainer has all gradients at once",
            "resumes": "mxnet: test_lossy_codec_gives_equal_bits_and_resumes_bit_identically",
        },
        "mxnet", "mxnet", apart=True,
    ),
    "lightning": Row(
        "Lightning",
        "its DDP, Gloo",
        {**OF_DDP, "trains": "recipes_lightning: test_lightning_trains_through_tithe",
         "resumes": "recipes_lightning: test_lightning_resumes_bit_identically_from_the_checkpoint_that_rank_0_wrote"},
        apart=True,
    ),
    "accelerate": Row(
        "Accelerate",
        "its DDP, Gloo",
        {**OF_DDP,
         "trains": ACCELERATE,
         "resumes": ACCELERATE},
        apart=True,
    ),
    "transformers": Row(
        "transformers' Trainer",
        "its DDP, Gloo",
        {**OF_DDP, "trains": "recipes_transformers: test_the_trainer_of_transformers_trains_through_tithe",
         "resumes": "recipes_transformers: test_the_trainer_of_transformers_resumes_bit_identically"},
        apart=True,
    ),
    "deepspeed": Row(
        "DeepSpeed, ZeRO 2",
        "Gloo",
        {
            "trains": "deepspeed: test_lossy_codec_gives_equal_bits_on_both_ranks",
            "bit-equal": "deepspeed: test_a_stage_of_zero_is_bit_equal_to_its_own_all_reduce",
            "overlaps": "no: it all-reduces behind backward",
            "resumes": "deepspeed: test_checkpoint_with_the_groups_state_resumes_bit_identically",
        },
        venv="deepspeed", apart=True,
    ),
    "numpy": Row(
        "numpy, a Session",
        "none: codec fp32",
        {
            "trains": "examples: test_average_numpy",
            "bit-equal": "core: test_session_averages_in_place",
            "overlaps": "no: what runs between `sync` and `wait` is the loop's",
            "resumes": "elastic: test_eight_ranks_continue_in_another_world",
        },
        "numpy", apart=True,
    ),
}  # fmt: skip


# ---- The tests


@cache
def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def missing() -> list[str]:
    """Returns tests that the page names and that do not exist."""
    out = []
    for row in ROWS.values():
        for named in row.tests.values():
            file, _, name = named.partition(": ")
            path = ROOT / "tests" / "python" / f"test_{file}.py"
            if file != "no" and (not path.exists() or name not in functions_of(path)):
                out.append(named)
    return out


# ---- The runs


def python_of(row: Row) -> Path:
    return ROOT / ".setup" / f"{row.venv}-venv" / "bin" / "python" if row.venv else Path(sys.executable)


def run_inside(args: argparse.Namespace) -> int:
    """Runs one framework; prints as JSON the results of each way, or the reason of a failure."""
    row = ROWS[args.inside]
    os.environ |= {
        **dict(row.environment),
        "GLOO_SOCKET_IFNAME": "eth0",
        "UCX_NET_DEVICES": "eth0",
        "UCX_TLS": "tcp,self",
        "UCX_LOG_LEVEL": "fatal",
        "OMP_NUM_THREADS": "1",
        **{"JAX_PLATFORMS": "cpu", "DS_ACCELERATOR": "cpu", "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"},
        "LOCAL_RANK": "0",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": str(ROOT / "python"),
        "TITHE_BENCH_STEPS": str(args.steps),
    }
    line = [str(python_of(row)), str(ROOT / "lab" / "bench" / "framework_jobs" / f"{row.jobs}_jobs.py"), args.inside]
    ways = [args.way] if args.way else list(row.ways)
    if "jax" in args.inside:  # JAX's gloo listens on the host's name
        named = f'hostname {SUBNET}.$((RANK / {row.per_host} + 1)); exec "$@"'
        line = ["unshare", "--uts", "sh", "-c", named, "sh", *line]
    print(json.dumps(hierarchy.measure(HOSTS, row.per_host, args.link, [*line, *ways])))
    return 0


def measured(name: str) -> dict[str, dict[str, float]]:
    row = ROWS[name]
    if not python_of(row).exists():
        return {}
    out: dict[str, dict[str, float]] = {}
    for ways in [[way] for way in row.ways] if row.apart else [[]]:
        try:
            out |= rerun_in_namespaces("--inside", name, *(word for way in ways for word in ("--way", way)))
        except SystemExit:
            print(f"{name} {' '.join(ways)}: failed", file=sys.stderr)
    return out


# ---- The page


def cells_of(name: str, measurements: dict[str, dict[str, float]]) -> str:
    row = ROWS[name]
    marks = ["no" if row.tests[each].startswith("no: ") else "yes" for each in PROPERTIES]
    if "own" in measurements and "tithe" in measurements:
        own, ours = measurements["own"], measurements["tithe"]
        half = f", bf16 {measurements['bf16']['ms']:.0f}" if "bf16" in measurements else ""
        figures = [
            f"{100 * own['accuracy']:.1f} -> {100 * ours['accuracy']:.1f}",
            f"{own['ms']:.0f}{half} -> {ours['ms']:.0f}",
            f"{own['ms'] / ours['ms']:.1f}x",
        ]
    elif "tithe" in measurements:
        figures = [
            f"-> {100 * measurements['tithe']['accuracy']:.1f}",
            f"-> {measurements['tithe']['ms']:.0f}",
            "its own did not run",
        ]
    else:
        figures = ["not run"] * 3
    return f"| {row.name} | {' | '.join(marks)} | {' | '.join(figures)} | {row.own} |"


def page(args: argparse.Namespace, measurements: dict[str, dict[str, dict[str, float]]]) -> str:
    quiet = "chrt -r 1 " if os.sched_getscheduler(0) == os.SCHED_RR else ""
    command = quiet + " ".join(["python", "lab/bench/frameworks.py", *sys.argv[1:]])
    out = [
        "# Frameworks by properties",
        "",
        f"`{command}`, {datetime.date.today().isoformat()}, {machine()}. Four hosts are network "
        f"namespaces of this machine on links of {args.link}; HSDP and shares inside hosts have two ranks on each. "
        f"Every framework trains one network of 0.66 million values for {args.steps} steps of Adam on the same data.",
        "",
        "Yes is a test that the second table names. Accuracy, in percent of held-out examples, and milliseconds of a "
        "step (medians) are those of its own all-reduce -> tithe's default codec, "
        "all else being equal; one run each, so a point of accuracy is noise. The network has not converged by then: "
        "what codecs cost in accuracy in the end is the matter of [the studies](README.md).",
        "",
        "| framework | trains | bit-equal, fp32 | overlaps | resumes bit for bit | accuracy | ms | faster | its own |",
        "|---|---|---|---|---|---|---|---|---|",
        *(cells_of(name, measurements.get(name, {})) for name in ROWS),
        "",
        "| framework | property | test in `tests/python/`, or why there is none |",
        "|---|---|---|",
    ]
    for row in ROWS.values():
        for each in PROPERTIES:
            file, _, name = row.tests[each].partition(": ")
            test = f"no: {name}" if file == "no" else f"`test_{file}.py`: `{name}`"
            of_ddp = " (DistributedDataParallel's)" if row.tests[each] == OF_DDP.get(each) and row.name != "DDP" else ""
            out.append(f"| {row.name} | {each} | {test}{of_ddp} |")
    return "\n".join(out) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ROWS), help="names of rows")
    parser.add_argument("--link", default="100mbit")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", action="store_true", help="the names of tests alone")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        return run_inside(args)
    if gone := missing():
        sys.exit(f"tests that are not there: {'; '.join(gone)}")
    if args.check:
        return 0
    measurements = {}
    for name in args.only:
        measurements[name] = measured(name)
        print(f"{name}: {json.dumps(measurements[name])}", file=sys.stderr, flush=True)
    give(page(args, measurements), args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
