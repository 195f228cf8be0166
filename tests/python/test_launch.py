# SPDX-License-Identifier: Apache-2.0
"""The files of examples/launch, with processes of this machine as hosts and pods.

The tests simulate Slurm and Kubernetes as their documents describe them; examples/launch/slurm.sbatch was also run
under Slurm 22.05 by hand.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from beside import python_of
from test_examples import ENVIRONMENT

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "examples/launch"
LOSS = re.compile(r"loss (\S+) -> (\S+); ")


def programs(folder, **texts):
    """Makes programs that precede all others in PATH; torchrun is this environment's."""
    texts["torchrun"] = f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n'
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {**ENVIRONMENT, "PATH": f"{folder}:{os.environ['PATH']}"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def together(commands):
    """Runs (words, environment, folder) concurrently. Returns their outputs; all must succeed."""
    running = [
        subprocess.Popen(words, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for words, env, folder in commands
    ]
    try:
        output = [process.communicate(timeout=300)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * len(running), output
    return "".join(output)


SRUN = """#!/bin/sh
[ "$1" = --export=ALL ] || exit 2
shift
SLURM_NODEID=0 "$@" &
SLURM_NODEID=1 "$@" && wait $!
"""


def test_slurm(tmp_path):
    scontrol = '#!/bin/sh\n[ "$1 $2 $3" = "show hostnames h[1-2]" ] && printf "127.0.0.1\\nh2\\n"\n'
    env = programs(tmp_path, scontrol=scontrol, srun=SRUN)
    env |= {"SLURM_JOB_NODELIST": "h[1-2]", "SLURM_NNODES": "2", "RANKS_PER_HOST": "1"}
    env |= {"SLURM_JOB_ID": str(free_port())}
    batch = LAUNCH / "slurm.sbatch"
    output = together([(["bash", str(batch)], env, ROOT)])
    first, last = LOSS.search(output).groups()
    assert float(last) < 0.7 * float(first)
    # One agent per host: torchrun starts the ranks.
    assert re.search(r"^#SBATCH --ntasks-per-node=1$", batch.read_text(), re.M)


def image(tmp_path):
    """Returns the folder and the first words of the image's programs."""
    lines = (LAUNCH / "Containerfile").read_text().splitlines()
    (entry,) = (line for line in lines if line.startswith("ENTRYPOINT"))
    folder = tmp_path / "job"
    folder.mkdir()
    workdir = next(at for at, line in enumerate(lines) if line.startswith("WORKDIR"))
    for line in lines[workdir:]:
        if line.startswith("COPY"):
            shutil.copy(ROOT / line.split()[1], folder)
    return folder, yaml.safe_load(entry.removeprefix("ENTRYPOINT "))


def check_pod(pod):
    """Checks for shared memory beyond a pod's 64 MiB, and for a job token from a Secret."""
    (container,) = pod["containers"]
    (mount,) = (m for m in container["volumeMounts"] if m["mountPath"] == "/dev/shm")
    (volume,) = (v for v in pod["volumes"] if v["name"] == mount["name"])
    assert volume["emptyDir"]["medium"] == "Memory"
    assert "secretKeyRef" in next(e for e in container["env"] if e["name"] == "TITHE_TOKEN")["valueFrom"]
    return container


def test_kubernetes(tmp_path):
    service, job = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    pod, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": name}  # the label that a Job's pods have
    assert pod["subdomain"] == service["metadata"]["name"] and job["spec"]["completionMode"] == "Indexed"
    container = check_pod(pod)
    folder, entry = image(tmp_path)
    env = programs(tmp_path) | {"TITHE_TOKEN": "5a" * 32}
    port = free_port()
    commands = []
    for index in range(job["spec"]["completions"]):
        words = [word.replace("$(JOB_COMPLETION_INDEX)", str(index)) for word in container["args"]]
        at = words.index(f"--master-addr={name}-0.{pod['subdomain']}")
        words[at] = "--master-addr=127.0.0.1"
        words[words.index("--master-port=29500")] = f"--master-port={port}"
        words[words.index("--nproc-per-node=2")] = "--nproc-per-node=1"
        commands.append(([*entry, *words], env, folder))
    assert f"--nnodes={len(commands)}" in container["args"]
    assert LOSS.search(together(commands))


def test_kubeflow(tmp_path):
    job = yaml.safe_load((LAUNCH / "pytorchjob.yaml").read_text())
    folder, _ = image(tmp_path)
    env = programs(tmp_path) | {"TITHE_TOKEN": "5a" * 32, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    pods = [r["template"]["spec"] for r in job["spec"]["pytorchReplicaSpecs"].values() for _ in range(r["replicas"])]
    commands = []
    for index, pod in enumerate(pods):
        container = check_pod(pod)
        assert container["name"] == "pytorch"
        (text,) = container["args"]
        words = [*container["command"], text.replace("--nproc-per-node 2", "--nproc-per-node 1")]
        commands.append((words, env | {"RANK": str(index), "WORLD_SIZE": str(len(pods))}, folder))
    assert LOSS.search(together(commands))


needs_ray = pytest.mark.skipif(not python_of("ray").exists(), reason="no Ray: run tools/setup.sh ray")


@needs_ray
def test_ray():
    output = together([([python_of("ray"), LAUNCH / "train_ray.py"], ENVIRONMENT, None)])
    loss, folder = re.search(r"loss (\S+); kept: (\S+)", output).groups()
    assert float(loss) < 0.3  # 0.33 at the start
    kept = sorted(path.name for path in Path(folder).iterdir())
    assert {"model.pt", "tithe_0.pt", "tithe_1.pt"} <= set(kept), kept


@needs_ray
def test_elastic_ray_workers_join_and_are_killed(tmp_path):
    """Workers of Ray Train join and are killed; the job continues from its checkpoints with the residuals of all
    ranks."""
    import torch

    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as short:  # sockets' paths
        env = ENVIRONMENT | {
            "RAY_TMPDIR": short,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # all on the loopback
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
            "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
            "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "3",
            "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "2",
        }
        together([([python_of("ray"), ROOT / "tests/python/ray_ranks.py", tmp_path], env, None)])
    left = {path.stem: torch.load(path) for path in tmp_path.glob("*.pt")}
    times = {name.split()[0] + " {1} of {4}".format(*name.split()) for name in left}
    assert times == {
        *("kept 4 of 2", "starts 4 of 3"),  # a node joined at step 6
        *("kept 8 of 3", "starts 8 of 2"),  # its worker was killed at step 10, and the node
        *("kept 12 of 2", "ends 14 of 2"),
    }

    def all_of(what, step, world):
        found = [left[f"{what} {step} {rank} of {world}"] for rank in range(world)]
        assert all(torch.equal(f["parameters"], found[0]["parameters"]) for f in found)
        assert all(f["stats"] == {"ranks_lost": 0, "values_lost": 0, "sum_lost": 0.0} for f in found)
        return [f["owed"] for f in found], found[0]["parameters"]

    all_of("kept", 12, 2)
    all_of("ends", 14, 2)
    (before, weights), (after, found) = all_of("kept", 4, 2), all_of("starts", 4, 3)
    assert torch.equal(weights, found) and all(map(torch.equal, before, after))
    assert all(owed.any() for owed in before) and not after[2].any()
    (before, weights), (after, found) = all_of("kept", 8, 3), all_of("starts", 8, 2)
    assert torch.equal(weights, found) and before[2].any()
    assert torch.allclose(sum(o.double() for o in before), sum(o.double() for o in after), rtol=0, atol=1e-6)
