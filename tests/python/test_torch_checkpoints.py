# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.Checkpoints: damaged files, full disks, processes that are killed during a write, other folders."""

import itertools
import logging
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from processes import run_ranks

import tithe
import tithe.torch
from tithe.torch._checkpoint import files

# ---- Only the files


def put(folder, step, text):
    """Writes a checkpoint of two files."""
    content = {name: f"{name} {text} ".encode() * 100 for name in ("a.pt", "b.pt")}
    files.write(folder, step, content)
    files.commit(folder, step, {"files": {name: files.sum_of(data) for name, data in content.items()}})


def newest(folder):
    """Returns step and text of the newest checkpoint, which must be complete."""
    step, place = list(files.steps(folder).items())[-1]
    sums = files.manifest(place)["files"]
    (text,) = {files.read(place, name, sums[name]).split()[1] for name in ("a.pt", "b.pt")}
    return step, text.decode()


def killed_at(number, body):
    """Runs body in a forked child, killed before its number-th call that accesses files. Returns whether it was
    killed."""
    child = os.fork()
    if child == 0:
        left = [number]

        def count(*_):
            left[0] -= 1
            if left[0] == -1:
                os.kill(os.getpid(), signal.SIGKILL)

        sync = os.fsync
        os.fsync = lambda descriptor: (count(), sync(descriptor))[1]
        sys.addaudithook(lambda event, _: count() if event == "open" or event.startswith(("os.", "shutil.")) else None)
        try:
            body()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("step", [8, 12])  # the newest again, and the next one
def test_killed_process_leaves_a_complete_checkpoint(tmp_path, step):
    ends = []
    for number in itertools.count():
        folder = tmp_path / str(number)
        folder.mkdir()
        put(folder, 4, "old")
        put(folder, 8, "old")
        killed = killed_at(number, lambda folder=folder: put(folder, step, "new"))
        files.clean(folder)
        names = sorted(path.name for path in folder.iterdir())
        assert not [name for name in names if name.endswith((".new", ".old"))], names
        ends.append(newest(folder))
        assert ends[-1] in ((8, "old"), (step, "new")), number
        if not killed:
            break
    assert number > 10 and ends[-1] == (step, "new") and (8, "old") in ends
    assert names == ["step 4", "step 8"] if step == 8 else names == ["step 12", "step 8"]


def flip(place):
    def damage(path):
        data = bytearray(path.read_bytes())
        data[int(place * (len(data) - 1))] ^= 16
        path.write_bytes(data)

    return damage


def to_folder(path):
    path.unlink()
    path.mkdir()


def to_pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGES = {
    "a bit": (flip(0.5), "is damaged: its checksum is"),
    "a byte less": (lambda path: os.truncate(path, path.stat().st_size - 1), "were written"),
    "empty": (lambda path: os.truncate(path, 0), "were written"),
    "deleted": (Path.unlink, "No such file"),
    "a folder": (to_folder, "not a file"),
    "a pipe": (to_pipe, "not a file"),
}


def wrong_with(place):
    """Returns the texts of the defects of a checkpoint's files."""
    try:
        sums = files.manifest(place)["files"]
    except (OSError, ValueError) as wrong:
        return [str(wrong)]
    texts = []
    for name, expected in sums.items():
        try:
            files.read(place, name, expected)
        except (OSError, ValueError) as wrong:
            texts.append(str(wrong))
    return texts


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", ["manifest", "a.pt", "b.pt"])
def test_damage_to_a_file_is_detected(tmp_path, kind, name):
    put(tmp_path, 4, "old")
    damage, text = DAMAGES[kind]
    damage(tmp_path / "step 4" / name)
    (problem,) = wrong_with(tmp_path / "step 4")
    assert f"'{tmp_path}/step 4/{name}'" in problem and (text in problem or name == "manifest")


@pytest.mark.parametrize("name", ["manifest", "a.pt"])
def test_every_bit_of_a_file_counts(tmp_path, name):
    put(tmp_path, 4, "old")
    path = tmp_path / "step 4" / name
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        assert wrong_with(tmp_path / "step 4"), place


def test_one_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "state.pt"
    files.replace(path, b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large: .*state.pt") as failed:
            files.replace(path, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failed.value.filename == f"{path}.new"
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"old"


# ---- With ranks


class Log(logging.Handler):
    """Records the warnings of this rank."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []
        logging.getLogger("tithe.torch._checkpoint.checkpoints").addHandler(self)

    def emit(self, record):
        self.texts.append(record.getMessage())

    def take(self):
        texts, self.texts = self.texts, []
        return texts


class Training:
    """One training of a rank, from the newest checkpoint of a folder."""

    def __init__(self, folder, seed=1, group=None, neighbours=False, every=4):
        torch.manual_seed(seed)
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(50, 40), process_group=group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)
        self.state = tithe.torch.attach(self.model, codec="topk:ratio=0.1", min_values=0, timeout=30.0)
        try:
            self.kept = tithe.torch.Checkpoints(
                folder, self.state, self.model, self.optimizer, every=every, neighbours=neighbours
            )
        except BaseException:
            self.state.close()
            raise

    def run(self, total):
        for step in self.kept.steps(total):
            data = torch.Generator().manual_seed(100 * dist.get_rank() + step)
            self.model.zero_grad()
            self.model(torch.randn(8, 50, generator=data)).pow(2).mean().backward()
            self.optimizer.step()
        return self

    def end(self):
        """Returns the step and the bits."""
        self.state.close()
        parts = [self.model.module.weight.detach(), self.optimizer.state_dict()["state"][0]["momentum_buffer"]]
        return self.kept.step, b"".join(part.numpy().tobytes() for part in parts)


def first_here(rank, body):
    """Runs a change of the folders on rank 0, while the others wait."""
    if rank == 0:
        body()
    dist.barrier()


def damaged(rank, world, folder):
    """Damages each file of the newest checkpoint, and starts from the folder. Returns the errors of the following
    training."""
    whole, log = Path(folder) / "whole", Log()
    ends = {total: Training(str(whole)).run(total).end() for total in (4, 8)}
    wrong = []
    kinds = {"manifest": "deleted", "model.pt": "a bit", "rank 0 of 2.pt": "a byte less", "rank 1 of 2.pt": "a folder"}
    for name, kind in kinds.items():
        damage, text = DAMAGES[kind]
        other = Path(folder) / f"{kind} {name}"

        def prepare(other=other, damage=damage, name=name):
            shutil.copytree(whole, other)
            damage(other / "step 8" / name)

        first_here(rank, prepare)
        end = Training(str(other)).end()
        warnings = log.take()
        if end != ends[4]:
            wrong.append(f"{kind}, {name}: step {end[0]}")
        fits = [f"'{other}/step 8/{name}'" in each and (text in each or name == "manifest") for each in warnings]
        if fits != ([True] if rank == 0 else []):
            wrong.append(f"{kind}, {name}: {warnings}")
    # The job continues, and replaces the damaged checkpoint.
    again = Training(str(other)).run(8).end()
    if again != ends[8] or Training(str(other)).end() != ends[8]:
        wrong.append("the damaged one was not replaced")
    log.take()
    first_here(rank, lambda: [flip(0.5)(other / f"step {step}" / "model.pt") for step in (4, 8)])
    with pytest.raises(ValueError, match="is whole") as refused:
        Training(str(other))
    if not all(f"step {step}/model.pt" in str(refused.value) for step in (4, 8)):
        wrong.append(str(refused.value))
    first_here(rank, lambda: [shutil.rmtree(path) for path in other.iterdir()])
    if Training(str(other)).kept.step != 0:
        wrong.append("an empty folder is no fresh start")
    return wrong


def test_damaged_file_is_named_and_an_older_checkpoint_used(tmp_path):
    assert run_ranks(2, damaged, str(tmp_path)) == [[], []]


def without_room(rank, world, folder):
    """The disk of one rank is full, each rank in turn. A limit on a file's size simulates the full disk."""
    training, write = Training(folder).run(4), files.write
    texts = []

    def limited(*args):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            write(*args)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    for full in range(world):
        training.kept.step = 8 + full
        files.write = limited if rank == full else write
        with pytest.raises((OSError, tithe.Error)) as failed:
            training.kept.save()
        files.write = write
        assert isinstance(failed.value, OSError) == (rank == full), failed.value
        assert rank == full or (failed.value.peer, failed.value.code) == (full, "io")
        texts.append(str(failed.value))
        dist.barrier()
        texts.append(sorted(path.name for path in Path(folder).iterdir()))
    training.kept.save()
    training.end()
    return texts, Training(folder).kept.step


def test_a_full_disk_is_named_and_leaves_the_earlier_checkpoint(tmp_path):
    for texts, step in run_ranks(2, without_room, str(tmp_path)):
        first, names, second, again = texts
        assert f"{tmp_path}/step 8.new/" in first and "File too large" in first, first
        assert f"{tmp_path}/step 9.new/rank 1 of 2.pt" in second, second
        assert names == again == ["step 4"] and step == 9


def beside_each_other(rank, world, folder):
    """Each rank has a folder of its own without neighbours=. With it, each rank loses and damages files, and has
    unexpected ones."""
    apart = Training(f"{folder}/apart {rank}")
    with pytest.raises((ValueError, tithe.Error), match="neighbours=True is for a folder on each host"):
        apart.run(4)
    apart.state.close()
    host, log = Path(folder) / f"host {rank}", Log()
    ends = {total: Training(str(host), neighbours=True).run(total).end() for total in (4, 8)}
    # Another job, whose checkpoints are in rank 1's folder beside its own of step 4.
    Training(f"{folder}/other {rank}", neighbours=True, seed=2).run(8).end()
    found = {}

    def after(name, *bodies):
        keep = shutil.copytree(host, host.with_name(f"kept {rank}"))
        dist.barrier()
        bodies[min(rank, len(bodies) - 1)]()
        dist.barrier()
        end = Training(str(host), neighbours=True).end()
        found[name] = end[0], end[1] in (ends[4][1], ends[8][1]), end[1], log.take()
        dist.barrier()
        shutil.rmtree(host)
        keep.rename(host)

    def nothing():
        return None

    def lose():
        shutil.rmtree(host / "step 8")

    def other():
        lose()
        shutil.copytree(f"{folder}/other {rank}/step 8", host / "step 8")

    after("one lost the last", nothing, lose)
    after("both lost the last", lose)
    after("a bit", nothing, lambda: flip(0.5)(host / "step 8" / "rank 1 of 2.pt"))
    after("a bit on both", lambda: flip(0.5)(host / "step 8" / "rank 1 of 2.pt"))
    after("a manifest", nothing, lambda: flip(0.5)(host / "step 8" / "manifest"))
    after("another job's", nothing, other)
    return found


def test_folders_of_hosts_can_differ(tmp_path):
    first, second = run_ranks(2, beside_each_other, str(tmp_path))
    assert [name for name in first if first[name][:3] != second[name][:3]] == []
    assert {name: result[:2] for name, result in first.items() if name != "another job's"} == {
        "one lost the last": (8, True),
        "both lost the last": (4, True),
        "a bit": (8, True),
        "a bit on both": (4, True),
        "a manifest": (8, True),
    }
    texts = {name: result[3] for name, result in first.items()}
    assert not any(result[3] for result in second.values())
    assert texts["one lost the last"] == texts["both lost the last"] == texts["another job's"] == []
    assert [len(texts[name]) for name in ("a bit", "a bit on both", "a manifest")] == [1, 1, 1], texts
    assert "copies of other hosts are used" in texts["a bit"][0] and "host 1/step 8/rank 1 of 2.pt" in texts["a bit"][0]


def of_another_world(rank, world, folder):
    """Three ranks save, two continue: from the older checkpoint if the file of the absent rank is damaged."""
    pair = dist.new_group([0, 1])
    end = Training(folder).run(8).end()
    first_here(rank, lambda: flip(0.5)(Path(folder) / "step 8" / "rank 2 of 3.pt"))
    if rank == 2:
        return None
    log = Log()
    training = Training(folder, group=pair)
    first = training.kept.step
    return first, training.run(10).end(), end[0], len(log.take())


def test_a_checkpoint_of_another_world_is_verified_too(tmp_path):
    first, second, _ = run_ranks(3, of_another_world, str(tmp_path))
    assert first[0] == second[0] == 4 and first[1] == second[1] and (first[3], second[3]) == (1, 0)


def other_parts(rank, world, folder):
    training = Training(folder).run(4)
    texts = []
    for optimizer in (None, torch.optim.AdamW(training.model.parameters())):
        with pytest.raises((ValueError, tithe.Error)) as refused:
            tithe.torch.Checkpoints(folder, training.state, training.model, optimizer)
        texts.append(str(refused.value))
    training.optimizer.param_groups[0]["note"] = Path("x")
    with pytest.raises((ValueError, tithe.Error)) as refused:
        training.kept.save()
    training.end()
    return [*texts, str(refused.value)], sorted(path.name for path in Path(folder).iterdir())


def test_mismatched_parts_are_refused_on_all_ranks(tmp_path):
    for (without, _, path), names in run_ranks(2, other_parts, str(tmp_path)):
        assert "it has model and optimizer, and Checkpoints() was given model: give it both" in without
        assert "weights_only=True) refuses" in path and names == ["step 4"]
