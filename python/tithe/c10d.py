# SPDX-License-Identifier: Apache-2.0
"""tithe for programs that call torch.distributed.all_reduce: a backend of the name "tithe".

    import tithe.c10d
    dist.init_process_group("tithe")                                   # Gloo does all collectives, uncompressed
    group = dist.new_group(ranks, backend="tithe", pg_options=tithe.c10d.Options(codec="fp8"))
    mesh = init_device_mesh("cpu", (hosts, ranks), mesh_dim_names=("replicate", "shard"),
                            backend_override={"replicate": ("tithe", tithe.c10d.Options(codec="fp8"))})
    tithe.c10d.compress(group, codec="fp8")                            # a group that other code has made

Such a group averages gradients through tithe: SUM and AVG of float32, bfloat16 and float16 tensors of at least
`min_values` values on the CPU. If its codec keeps no residual, tithe also does its reduce_scatter_tensor, and its
all_gather_into_tensor without loss. FSDP1 and DeepSpeed ZeRO 3 need only these collectives. Gloo does all other
collectives.

The group cannot distinguish a gradient from a loss, an activation or a parameter. So use a group for gradients only;
the default group is refused. The group cannot distinguish parameters either: a residual belongs to the n-th all-reduce
of N values since the last optimizer step, which must be the same tensor in every step. Each all-reduce is a round of
its own.
state_dict(group) and load_state_dict(group, state) save and load a rank's residuals; save them beside the model. If
gradients have names (DistributedDataParallel, fully_shard()), tithe.torch.attach() is better.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

try:
    import torch
    import torch.distributed as dist
    from torch.optim.optimizer import register_optimizer_step_post_hook
except ModuleNotFoundError as error:
    from tithe._missing import no_torch

    raise no_torch("tithe.c10d", error) from None

from tithe import _core
from tithe._choices import add_rules, choices_text
from tithe._error import error
from tithe._exchange import all_gather_bytes
from tithe._session import make_options, transport_text
from tithe._stats import summed_up
from tithe.torch._common.checks import DTYPES, refuse_outsider, some
from tithe.torch._device.route import BucketRoute
from tithe.torch._hook.job import Job
from tithe.torch._hook.round_thread import RoundThread
from tithe.torch._hook.session_end import end_session, interrupted
from tithe.torch._sharded import c10d_jobs as shards
from tithe.torch._sharded.settings import any_residual

__all__ = ["Options", "compress", "end_step", "load_state_dict", "state_dict", "stats"]

_Base = torch._C._distributed_c10d.Backend.Options
_MAX_ALL_REDUCES = 1 << 16  # the limit of all-reduces of one size between two steps


class Options(_Base):
    """The settings of a group of backend "tithe": codec, strategy and options as tithe.Session takes them."""

    def __init__(self, codec: str = _core.Options().codec, **options: Any) -> None:
        super().__init__("tithe")
        if _core.is_auto(codec):
            raise ValueError(f"codec={codec!r} decides by the names of parameters, and all-reduces have none: name one")
        transport_text(dict(options))
        make_options({k: v for k, v in {"codec": codec, **options}.items() if k != "transport"})
        self.arguments = {"codec": codec, **options}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Options":
        return Options(**self.arguments)


def _serve(session: _core.Session, jobs: "queue.SimpleQueue[Job | None]", causes: list[BaseException]) -> None:
    while (job := jobs.get()) is not None:
        try:
            if causes:
                raise causes[0]
            job.sync(session)
            session.wait(job.ticket)
            session.commit()
            job.finish_round(session.last_round_dropped)
            job.end(None)
        except Exception as why:
            job.end(causes[0] if causes else why)
        del job  # the job refers to a tensor


class _Future(torch.futures.Future):
    """A future whose exceptions keep their types in then(). torch's own future turns each one into a RuntimeError."""

    def complete(self, result: Callable[[], Any]) -> None:
        try:
            self.set_result(result())
        except Exception as wrong:  # raised by wait()
            self.set_exception(wrong)

    def then(self, callback: Callable[[Any], Any]) -> "_Future":
        after = _Future()
        self.add_done_callback(lambda _: after.complete(lambda: callback(self)))
        return after


class _Work(dist.Work):
    """An all-reduce under way. If it fails, every wait for it raises tithe.Error."""

    def __init__(self, job: Job, rounds: RoundThread, tensor: torch.Tensor, divisor: int) -> None:
        super().__init__()
        self._job, self._rounds = job, rounds
        self._future = future = _Future()  # the callback must not refer to this Work
        job.future.add_done_callback(lambda _: future.complete(lambda: _result(job, tensor, divisor)))

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Returns when the all-reduce is over.

        timeout: if it is above 0, tithe.Error is raised after it. The all-reduce continues, and wait() may be called
        again.
        """
        seconds = 0.0 if timeout is None else timeout.total_seconds()
        over = True
        try:
            if seconds > 0:
                over = self._job.done.wait(seconds)
            if over:
                self._job.wait()
        except BaseException as why:  # Ctrl-C
            end_session(self._rounds.session, self._rounds.causes, interrupted(why))
            raise
        if not over:
            raise error("timeout", None, f"the all-reduce was not over within {seconds:g} s")
        self._future.wait()  # raises the error of the job
        return True

    def is_completed(self) -> bool:
        return self._future.done()

    def get_future(self) -> torch.futures.Future:
        if torch._C._current_graph_task_id() != -1:
            # DDP waits for the future at the end of backward, in C++, where a RuntimeError would replace a tithe.Error.
            # Autograd runs this callback before DDP's, and passes its exception on unchanged.
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)
        return self._future


class _Group(shards.ShardCollectives, dist.ProcessGroup):
    """A process group on top of Gloo's, which does all collectives that tithe does not."""

    def __init__(self, made: Any, given: dict[str, Any] | None) -> None:
        super().__init__(made.group_rank, made.group_size)
        self._gloo = dist.ProcessGroupGloo(made.store, made.group_rank, made.group_size, timeout=made.timeout)
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
        self._options_given = given
        self._rounds: RoundThread | None = None
        self._works: list[_Work] = []
        # threads may all-reduce at once: the numbers must follow the order of the rounds
        self._lock = threading.RLock()
        self._counts: dict[str, int] = {}  # the number of all-reduces since the last step, by size and type
        self._layouts: dict[str, _core.Layout] = {}
        _groups.add(self)

    def allreduce(self, tensors: list[torch.Tensor], options: Any = None) -> Any:
        if len(tensors) == 1 and self._is_compressed(tensors[0], options):
            return self._start(tensors[0], options)
        return self._gloo.allreduce(tensors, options) if options is not None else self._gloo.allreduce(tensors)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], options: Any = None) -> Any:
        if not all(self._is_compressed(tensor, options) for tensor in tensors):
            return self._gloo.allreduce_coalesced(tensors, options)
        return [self._start(tensor, options) for tensor in tensors][-1]  # the works end in this order

    def _put(self, job: Job, tensor: torch.Tensor, average: bool) -> Any:
        with self._lock:
            rounds = self._open()
            work = _Work(job, rounds, tensor, self.size() if average else 1)
            rounds.put(job, "this group is shut down")
            # C++ has only a pointer to the Python object, which does not keep the object alive.
            self._works = [each for each in self._works if not each.is_completed()] + [work]
        return work

    def _is_compressed(self, tensor: torch.Tensor, options: Any) -> bool:
        if self._options_given is None:
            return False
        kind = dist.ReduceOp.SUM if options is None else options.reduceOp
        return (
            # not `in`, which would call the other operand's __eq__
            any(kind == each for each in (dist.ReduceOp.SUM, dist.ReduceOp.AVG))
            and tensor.dtype in DTYPES
            and tensor.layout == torch.strided
            and tensor.is_cpu
            and tensor.is_contiguous()
            and tensor.numel() >= max(1, self._options().min_values)
        )

    def _options(self) -> _core.Options:
        rest = dict(self._options_given)
        transport_text(rest)
        if not any_residual(rest):
            rest["choices"] = add_rules(shards.gather_rules(), choices_text(rest.get("choices")))
        return make_options({**rest, "average": False})

    def _start(self, tensor: torch.Tensor, options: Any) -> Any:
        flat = tensor.detach().view(-1)
        average = options is not None and options.reduceOp == dist.ReduceOp.AVG
        with self._lock:
            return self._put(Job(0, self._layout(flat), BucketRoute(flat), last=True), tensor, average)

    def _layout(self, flat: torch.Tensor) -> _core.Layout:
        looks = f"{flat.numel()} {DTYPES[flat.dtype]}"
        number = self._counts[looks] = self._counts.get(looks, 0) + 1
        if number > _MAX_ALL_REDUCES:
            raise ValueError(
                f"{number} all-reduces of {looks} without a step of an optimizer between them: call "
                "tithe.c10d.end_step() after each step"
            )
        key = f"{looks} #{number}"
        if key not in self._layouts:
            self._layouts[key] = _core.Layout([key], [flat.numel()], DTYPES[flat.dtype])
        return self._layouts[key]

    def _open(self) -> RoundThread:
        if self._rounds is None:
            if self is dist.group.WORLD:
                raise ValueError(_DEFAULT)
            options, doing = self._options(), "the first all-reduce of a group of tithe.c10d"
            rest = dict(self._options_given)
            session = _core.open(
                transport_text(rest),
                self.rank(),
                self.size(),
                lambda mine: all_gather_bytes(mine, self, options.patience, doing),
                options,
            )
            self._rounds = RoundThread(session, _serve)
        return self._rounds

    def end_step(self) -> None:
        self._counts.clear()

    def between_steps(self, doing: str) -> None:
        """Returns when no all-reduce is under way. ValueError inside a step."""
        if self._counts:
            raise ValueError(
                f"{doing} in the middle of a step: after optimizer.step(), or tithe.c10d.end_step() where the step was "
                "another"
            )
        for work in self._works:
            work.wait()

    def shutdown(self) -> None:
        if self._rounds is not None:
            self._rounds.stop()
        self._gloo.shutdown()

    def getBackendName(self) -> str:
        return "tithe"


def _through(name: str) -> Any:
    """Returns a method that calls the collective of Gloo's group.

    Without a Python method, torch 2.13 calls its own with the interpreter's lock held. Gloo's thread may wait for that
    lock and hold another one that the call needs.
    """

    def collective(self: _Group, *args: Any, **options: Any) -> Any:
        return getattr(self._gloo, name)(*args, **options)

    return collective


_COLLECTIVES = (
    "allgather allgather_coalesced alltoall alltoall_base barrier broadcast gather recv recv_anysource reduce "
    "reduce_scatter scatter send"
)
for _name in _COLLECTIVES.split():
    setattr(_Group, _name, _through(_name))

_DEFAULT = (
    "the default group carries losses, statistics and parameters beside gradients, and is never compressed: name a "
    'group of gradients, dist.new_group(..., backend="tithe", pg_options=tithe.c10d.Options(...)), or compress(group)'
)
_groups: "weakref.WeakSet[_Group]" = weakref.WeakSet()


def _result(job: Job, tensor: torch.Tensor, divisor: int) -> list[torch.Tensor]:
    if job.error is not None:
        raise job.error
    if divisor > 1:
        tensor.div_(divisor)
    return [tensor]


def _create(made: Any, options: Any) -> _Group:
    if options is not None and not dist.is_initialized():
        raise ValueError(_DEFAULT)
    if options is not None and not isinstance(options, Options):
        raise ValueError(f"pg_options of a group of backend tithe are tithe.c10d.Options, not {type(options).__name__}")
    return _Group(made, None if options is None else dict(options.arguments))


def _known(group: dist.ProcessGroup) -> _Group:
    refuse_outsider(group)
    if not isinstance(group, _Group):
        raise ValueError('this group is not of backend "tithe": dist.new_group(..., backend="tithe")')
    return group


def compress(group: dist.ProcessGroup, codec: str = _core.Options().codec, **options: Any) -> None:
    """Makes a group of backend "tithe" average gradients through tithe from now on. Call it on all of its ranks."""
    known = _known(group)
    if known is dist.group.WORLD:
        raise ValueError(_DEFAULT)
    if known._options_given is not None:
        raise ValueError("this group is compressed already, with the options that it was made with")
    known._options_given = Options(codec, **options).arguments


def end_step(*_: Any) -> None:
    """Ends a step: the next all-reduce of a size counts as the first again. Every step() of an optimizer calls it."""
    for group in _groups:
        group.end_step()


def state_dict(group: dist.ProcessGroup) -> dict[str, Any]:
    """Returns this rank's residuals in the group, for torch.save() on each rank. Call it between steps.

    {} before the group's first all-reduce.
    """
    known = _known(group)
    if known._rounds is None:
        return {}
    known.between_steps("tithe.c10d.state_dict()")
    return {"session": known._rounds.session.state(), "rank": known.rank(), "world": known.size()}


def load_state_dict(group: dist.ProcessGroup, state: Mapping[str, Any]) -> None:
    """Continues from this rank's state_dict(). Call it between steps, on all ranks of the group: collective.

    ValueError, before anything has changed, for the state of another rank, world or codec, and for another object.
    """
    known = _known(group)
    known.between_steps("tithe.c10d.load_state_dict()")
    if not state:
        return
    if missing := {"session", "rank", "world"} - state.keys():
        raise ValueError(
            f'this is no state of a group of backend "tithe", since it has no {some(sorted(missing))}: load what '
            "tithe.c10d.state_dict(group) returned on this rank"
        )
    if known._options_given is None:
        raise ValueError("this group is not compressed, so it has nothing unsent: compress(group, ...) first")
    if (state["rank"], state["world"]) != (known.rank(), known.size()):
        raise ValueError(
            f"this is the state of rank {state['rank']} of {state['world']}, and this is rank {known.rank()} of "
            f"{known.size()}: each rank loads its own"
        )
    known._open().session.restore(state["session"])


def stats(group: dist.ProcessGroup) -> dict[str, Any]:
    """Returns tithe.Session.stats() of the group's session; {} before its first all-reduce."""
    rounds = _known(group)._rounds
    return {} if rounds is None else summed_up(rounds.session)


if "tithe" not in dist.Backend.backend_list:
    dist.Backend.register_backend("tithe", _create, extended_api=True, devices=["cpu"])
    register_optimizer_step_post_hook(end_step)
