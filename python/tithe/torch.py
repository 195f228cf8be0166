# SPDX-License-Identifier: Apache-2.0
"""tithe for PyTorch's DistributedDataParallel.

    import tithe.torch
    model = DistributedDataParallel(model)
    tithe.torch.attach(model, codec="qtopk:ratio=0.03")

or the standard pair, for trainers that register hooks themselves (Lightning: `DDPStrategy(ddp_comm_state=State(...),
ddp_comm_hook=hook)`):

    model.register_comm_hook(State(codec="qtopk:ratio=0.03"), hook)

What DDP users rely on, and how it is here:
  mean             gradients come back averaged over the ranks of the process group, bit-identical on all of them
  no waiting       the hook starts the exchange and returns; a worker thread completes the future
  accumulation     under no_sync() DDP calls no hook: gradients add up locally and are sent with the next step
  keyed            residuals belong to parameters, by name with attach(), else by the order in which DDP first hands
                   them over, which is the same on all ranks; DDP may rebuild its buckets after the first step
  not finite       a NaN or Inf on one rank gives NaN on all ranks: GradScaler skips the step on all of them, and
                   residuals stay as they were. With a GradScaler pass loss_scale=scaler.get_scale, so that residuals
                   stay in true gradient units when the scale changes
  uneven inputs    under Join a rank that has run out of data goes on sending what it still owes (its residual) with a
                   zero gradient: nothing is lost. The mean always divides by the group's full size
  momentum         with feedback=momentum in the codec, momentum happens before sending: use an optimizer without it
  sparse           sparse gradients are refused: use nn.Embedding(sparse=False)
  unused           find_unused_parameters works; what was owed to a parameter that no rank used in a step goes out
                   with that step, and DDP drops it as it drops the whole gradient
  errors           backward() raises tithe.Error with `peer`; the session is over then. Restart from a checkpoint
  fork             a forked child must not run backward with the parent's State; DataLoader workers are fine
"""
# No `from __future__ import annotations` here: DDP compares the hook's annotations with the classes themselves.

import copy
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function
from torch.nn.parallel import DistributedDataParallel

from tithe import _core
from tithe._schedule import Evaluations, agree
from tithe._session import make_options
from tithe._torch_live import Job, Live

__all__ = ["State", "attach", "hook"]

_log = logging.getLogger(__name__)

_STATE_FORMAT = 2


class _Slots:
    # Apart from State.__slots__, which are the settings alone and compare equal after pickling.
    __slots__ = ("__weakref__", "_live", "_names", "_saved")


class State(_Slots):
    """What `hook` needs: which ranks, which codec, and this rank's residuals.

    process_group: the ranks to average over; None is the default group at the first use.
    codec, strategy: as `tithe codecs` and `tithe.strategies()` list them.
    parameters: (name, parameter) pairs, e.g. model.named_parameters(), to key residuals by name.
    loss_scale: a function that gives the factor by which the loss is scaled (GradScaler.get_scale).
    schedule: how the codec's ratio changes between steps, e.g. "warmup:400+recover" (include/tithe/schedule.h).
    options: lanes, average, min_values, part_values, timeout, patience (seconds), seed, run, force_reference (see
    tithe.Session), and transports, devices (UCX_TLS, UCX_NET_DEVICES).

    Nothing is opened before the first use, which is collective over the group. A bad setting raises ValueError.
    Pickling keeps settings and residuals of this rank and drops the process group.
    """

    __slots__ = ("codec", "loss_scale", "options", "process_group", "strategy")

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        codec: str = "qtopk:ratio=0.03",
        strategy: str = "server",
        parameters: Iterable[tuple[str, torch.nn.Parameter]] = (),
        loss_scale: Callable[[], float] | None = None,
        **options: Any,
    ) -> None:
        for name in ("transports", "devices"):
            if not isinstance(options.get(name, ""), str):
                raise ValueError(f"{name}={options[name]!r}: must be a string")
        self.process_group = process_group
        self.codec = codec
        self.strategy = strategy
        self.loss_scale = loss_scale
        self.options = options
        self._live: Live | None = None
        self._names = {id(p): (name, p) for name, p in parameters}
        self._saved: Mapping[str, Any] | None = None
        self._session_options()

    def _session_options(self) -> _core.Options:
        rest = {k: v for k, v in self.options.items() if k not in ("transports", "devices")}
        return make_options({"codec": self.codec, "strategy": self.strategy, **rest})

    # ---- life

    def open(self) -> None:
        """Connects to the other ranks; does nothing if that is done. Collective over the group."""
        if self._live is not None:
            return
        group = self._group()
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        if self._saved is not None:
            self._check_saved(self._saved, rank, world)
        options = self._session_options()
        session = _core.open_ucx(
            rank,
            world,
            lambda mine: _all_gather_bytes(mine, group),
            self.options.get("transports", ""),
            self.options.get("devices", ""),
            options,
        )
        evaluations = Evaluations(options)
        loaded: dict[str, int] = {}
        if self._saved is not None:
            self._restore(session, evaluations, self._saved)
            loaded = dict(self._saved["parameters"])
            self._saved = None
        self._live = Live(session, evaluations, self._names, loaded)

    def close(self) -> None:
        """Lets go of the network and the worker thread. Peers that still synchronise see this rank leave."""
        if self._live is not None:
            self._live.stop()

    def _group(self) -> dist.ProcessGroup:
        group = self.process_group if self.process_group is not None else dist.group.WORLD
        if group is None:
            raise ValueError("call torch.distributed.init_process_group() first")
        return group

    # ---- one bucket

    def _start(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.open()
        live = self._live
        buffer = bucket.buffer()
        try:
            if buffer.layout != torch.strided:
                raise ValueError("sparse gradients are not supported: use nn.Embedding(sparse=False)")
            layout = live.layout(bucket, buffer)
            scale = 1.0 if self.loss_scale is None else float(self.loss_scale())
            if scale != 1.0:
                buffer.div_(scale)
            with record_function("tithe::sync"):
                ticket = live.session.sync_at(layout, buffer.data_ptr())
        except Exception:
            live.stop()  # so that the other ranks hear of it now, not after their timeout
            raise
        job = Job(ticket, buffer, bucket.is_last(), scale)
        live.last = job
        future = job.future.then(_value)
        live.jobs.put(job)
        if torch._C._current_graph_task_id() != -1:
            # Runs just before DDP waits for its futures: raises the error itself, with its type and `peer`, where
            # DDP would raise a text about a future; and Ctrl-C works while it waits.
            torch.autograd.Variable._execution_engine.queue_callback(lambda: _raise_errors(job))
        return future

    # ---- schedules

    def evaluated(
        self, *, loss: float | None = None, accuracy: float | None = None, learning_rate: float | None = None
    ) -> None:
        """One call per evaluation, between steps, on all ranks: what a schedule follows. Collective over the group.

        loss or accuracy (0..1): of this rank's part of the evaluation data, or of all; ranks that evaluated nothing
        leave both out. The mean over those that did is what counts, on all ranks alike.
        learning_rate: of the steps to come, the same on all ranks; ranks may leave it out where another one gives it.
        ValueError on all ranks where one is wrong, or where the schedule follows something that no rank gave. What the
        schedule does not follow is ignored, so the call may stay where there is no schedule.
        """
        self.open()
        self._live.drain()
        given = {"loss": loss, "accuracy": accuracy, "learning_rate": learning_rate}
        mine = json.dumps({name: None if value is None else float(value) for name, value in given.items()})
        told = [json.loads(blob) for blob in _all_gather_bytes(mine.encode(), self._group())]
        self._live.evaluations.tell(self._live.session, *self._live.evaluations.read(**agree(told)))

    @property
    def ratio(self) -> float | None:
        """The fraction of values that the next step sends; None without a schedule."""
        return self._running().ratio or None

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """This rank's residuals and counters, as a uint8 tensor and plain values: save one per rank.

        Call it between steps, on all ranks at the same step.
        """
        if self._live is None:
            if self._saved is not None:
                return dict(self._saved)
            raise ValueError("nothing to save yet: call open(), or run a step, before state_dict()")
        self._live.drain()
        session = self._live.session
        return {
            "format": _STATE_FORMAT,
            "world": session.world,
            "rank": session.rank,
            "codec": _core.check_spec(self.codec),
            "parameters": self._live.parameters(),
            "evaluates": self._live.evaluations.kind,
            "session": torch.frombuffer(bytearray(session.state()), dtype=torch.uint8),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues bit-identically from what state_dict() gave on this rank, with the same model and codec.

        ValueError for another world size, rank or codec; nothing changes then. Load before the first step.
        """
        missing = {"format", "world", "rank", "codec", "parameters", "evaluates", "session"} - set(state)
        if missing or state["format"] != _STATE_FORMAT:
            raise ValueError("not a state of this version of tithe.torch.State")
        if self._live is None:
            self._saved = dict(state)
            return
        if self._live.keys:
            raise ValueError("load the state before the first step: make a new DDP model and State, then load")
        self._check_saved(state, self._live.session.rank, self._live.session.world)
        self._restore(self._live.session, self._live.evaluations, state)
        self._live.loaded = dict(state["parameters"])

    def _check_saved(self, state: Mapping[str, Any], rank: int, world: int) -> None:
        if state["world"] != world:
            raise ValueError(
                f"the state was saved by {state['world']} ranks and this job has {world}: "
                f"start {state['world']} ranks, or start without the state (what was unsent is then lost)"
            )
        if state["rank"] != rank and not _core.is_lossless(self.codec):
            raise ValueError(
                f"the state was saved by rank {state['rank']} and this is rank {rank}: residuals differ between ranks, "
                "save and load one state per rank"
            )

    def _restore(self, session: _core.Session, evaluations: Evaluations, state: Mapping[str, Any]) -> None:
        if _core.is_lossless(self.codec) and _core.is_lossless(state["codec"]):
            return  # nothing is ever left unsent, so any rank's state will do
        session.restore(state["session"].contiguous().numpy().tobytes())
        evaluations.kind = state["evaluates"]

    # ---- copies

    def __getstate__(self) -> dict[str, Any]:
        _log.warning("Process group is not serializable and excluded from a saved state.")
        saved = self._saved if self._live is None else self.state_dict()
        settings = {name: getattr(self, name) for name in State.__slots__ if name != "process_group"}
        return {**settings, "_saved": saved}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        _log.warning(
            "Process group will be set to the default group: if it is another, set `process_group` before a step."
        )
        for name, value in state.items():
            setattr(self, name, value)
        self.process_group = dist.group.WORLD if dist.is_initialized() else None
        self._live = None
        self._names = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "State":
        """Same group, same settings, same residuals, its own connections (opened at its first use)."""
        twin = State.__new__(State)
        memo[id(self)] = twin
        for name in State.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.options = copy.deepcopy(self.options, memo)
        twin._live = None
        twin._names = {}
        twin._saved = self._saved if self._live is None else self.state_dict()
        return twin

    # ---- what it did

    def stats(self) -> dict[str, int]:
        """Sums since the first use: rounds, bytes_sent, encode_ns, merge_ns, send_ns, wait_ns, ..."""
        return self._running().stats()

    def plan(self) -> str:
        """What happens to each slice of each bucket, and why."""
        return self._running().plan_text()

    def trace(self, on: bool = True) -> None:
        """Keeps the last 65,536 events while on."""
        self._running().trace(on)

    def take_trace(self) -> list[dict[str, Any]]:
        """The events kept so far, and forgets them."""
        return self._running().take_trace()

    def residual(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """What this rank has not sent yet of a parameter's gradient, float32, in the parameter's shape."""
        session = self._running()
        self._live.drain()
        out = torch.empty(parameter.shape, dtype=torch.float32)
        session.residual(self._live.key(parameter), out.view(-1).numpy())
        return out

    def _running(self) -> _core.Session:
        if self._live is None:
            raise ValueError("not open yet: call open(), or run a step")
        return self._live.session


def _value(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
    return future.value()  # raises here what set_exception() was given, so that it reaches DDP as an error


def _raise_errors(job: Job) -> None:
    job.done.wait()
    if job.error is not None:
        raise job.error


def _all_gather_bytes(mine: bytes, group: dist.ProcessGroup) -> list[bytes]:
    """The bytes of all ranks, in rank order, over the process group as byte tensors."""
    kinds = {device.type for device in group._device_types}
    device = torch.device("cpu") if "cpu" in kinds else torch.device("cuda", torch.cuda.current_device())
    world = dist.get_world_size(group)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(mine)], dtype=torch.int64, device=device), group=group)
    longest = max(int(size) for size in sizes)
    padded = torch.zeros(longest, dtype=torch.uint8, device=device)
    padded[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8).to(device)
    blobs = [torch.zeros_like(padded) for _ in range(world)]
    dist.all_gather(blobs, padded, group=group)
    return [blob[: int(size)].cpu().numpy().tobytes() for blob, size in zip(blobs, sizes, strict=True)]


def hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the mean of the bucket over all ranks, in place. For register_comm_hook(state, hook)."""
    if not isinstance(state, State):
        raise ValueError("tithe.torch.hook needs its state: register_comm_hook(tithe.torch.State(...), hook)")
    return state._start(bucket)


def attach(
    model: DistributedDataParallel,
    codec: str = "qtopk:ratio=0.03",
    strategy: str = "server",
    **options: Any,
) -> State:
    """Makes a DDP model synchronise its gradients through tithe. Collective: all ranks call it, before backward.

    Options are those of State. Returns the State: state_dict(), load_state_dict(), stats(), plan(), trace(), close().
    """
    if not isinstance(model, DistributedDataParallel):
        raise ValueError(f"attach() takes a DistributedDataParallel model, not {type(model).__name__}")
    state = State(
        model.process_group,
        codec=codec,
        strategy=strategy,
        parameters=model.module.named_parameters(),
        **options,
    )
    model.register_comm_hook(state, hook)
    state.open()
    return state
