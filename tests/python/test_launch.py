# SPDX-License-Identifier: Apache-2.0
"""The files of examples/launch, with hosts and pods that are processes of this machine.

Slurm's and Kubernetes' own part is played here as their documents describe it; examples/launch/slurm.sbatch was also
run under Slurm 22.05 by hand.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from beside import python_of
from test_examples import ENVIRONMENT

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "examples/launch"
LOSS = re.compile(r"loss (\S+) -> (\S+); ")


def programs(folder, **texts):
    """Programs that stand before all others in PATH; torchrun is this environment's."""
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
    """Runs (words, environment, folder) beside each other; what they print, all of them having succeeded."""
    running = [
        subprocess.Popen(words, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for words, env, folder in commands
    ]
    try:
        said = [process.communicate(timeout=300)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * len(running), said
    return "".join(said)


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
    said = together([(["bash", str(batch)], env, ROOT)])
    first, last = LOSS.search(said).groups()
    assert float(last) < 0.7 * float(first)
    # As many agents as hosts: torchrun starts the ranks.
    assert re.search(r"^#SBATCH --ntasks-per-node=1$", batch.read_text(), re.M)


def image(tmp_path):
    """The folder and the first words of the image's programs."""
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
    """Shared memory beyond a pod's 64 MiB, and a job token that comes from a Secret."""
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


@pytest.mark.skipif(not python_of("ray").exists(), reason="no Ray: run tools/setup.sh ray")
def test_ray():
    said = together([([python_of("ray"), LAUNCH / "train_ray.py"], ENVIRONMENT, None)])
    loss, folder = re.search(r"loss (\S+); kept: (\S+)", said).groups()
    assert float(loss) < 0.3  # 0.33 at the start
    kept = sorted(path.name for path in Path(folder).iterdir())
    assert {"model.pt", "tithe_0.pt", "tithe_1.pt"} <= set(kept), kept
