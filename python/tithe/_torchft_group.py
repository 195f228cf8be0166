# SPDX-License-Identifier: Apache-2.0
"""The process group of tithe.torchft: a session that averages the gradients of the replicas of a quorum."""

import contextlib
import functools
import json
import logging
import uuid
import weakref
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torchft.process_group import ProcessGroupGloo

from tithe import _core
from tithe._choices import choices_text, is_lossless
from tithe._error import error
from tithe._schedule import Evaluations
from tithe._session import make_options, refuse_unknown, transport_text
from tithe._stats import summed_up
from tithe.torch._common.checks import DTYPES
from tithe.torch._common.parameter_keys import ParameterKeys, by_name
from tithe.torch._common.state_fit import laid_out_like
from tithe.torch._device.route import BucketRoute
from tithe.torch._hook.job import Job
from tithe.torch._hook.running_session import Barrier, RunningSession
from tithe.torch._hook.session_end import end_session

_log = logging.getLogger("tithe.torch")
_RESERVED = ("average", "epoch", "hosts", "members", "servers", "undo")  # options that the group sets itself
_PATIENCE = 60.0  # seconds, torchft's default
_UNDONE = 64  # epochs to remember, for replicas that were absent
_MANY = 4096  # a tensor without a name and with this number of values or more causes a warning


class ProcessGroup(ProcessGroupGloo):
    """The group for torchft.Manager(pg=...): gradients with names go through a codec between replicas.

    codec, strategy and options as tithe.Session takes them; patience is 60 seconds by default. ValueError for a wrong
    one. The docstring of tithe.torchft has the rules for residuals.
    """

    __module__ = "tithe.torchft"

    def __init__(self, codec: str = _core.Options().codec, **options: Any) -> None:
        refuse_unknown(options)
        if taken := [name for name in _RESERVED if name in options]:
            raise ValueError(f"{taken[0]}= is decided by torchft's quorum: leave it out")
        if _core.is_auto(codec):
            raise ValueError(f"codec={codec!r} plans for ranks that stay: name a codec")
        given = {"patience": _PATIENCE, **options, "codec": codec, "choices": choices_text(options.get("choices"))}
        self._lossless = is_lossless(codec, given["choices"])
        self._transport = transport_text(given)
        self._session_options = {**given, "average": False, "undo": not self._lossless}
        if "feedback=momentum" in _core.check_codec(codec) + given["choices"]:
            raise ValueError("feedback=momentum: a replica that heals would have none; leave it to the optimizer")
        super().__init__(timedelta(seconds=make_options(self._session_options).patience))
        self._own = uuid.uuid4().hex[:12]  # a restarted replica gets a new identifier
        self._name, self._epoch = "", 0
        self._undone: list[int] = []  # epochs whose last round was reverted
        self._names: dict[int, tuple[str, torch.nn.Parameter]] = {}
        self._running: RunningSession | None = None
        self._manager: Callable[[], Any] = lambda: None
        self._last: Job | None = None  # the last job of the newest step, after all its buckets were handed over
        self._step = 0  # the manager's number of the newest step
        # Gradients held back while this replica heals, by key: the values from before the newest step, and the values
        # that replace them if the step counts.
        self._deferred: dict[str, torch.Tensor] = {}
        self._next_deferred: dict[str, torch.Tensor] | None = None
        self._to_defer: dict[str, torch.Tensor] = {}  # the values to hold back in this step
        self._gloo_arguments: tuple[Any, int, int] | None = None
        self._warned = False

    # ---- a quorum

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        """Connects the session to the ranks of a new quorum; configure() calls it. Collective over them."""
        gather = functools.partial(_gather, store, rank, world_size)
        completed_step = self._last_complete_step()
        mine = {
            "new": f"{self._replica_id}:{self._own}",
            "name": self._name,
            "epoch": self._epoch,
            "step": self._now(),
            "completed_step": completed_step,
            "undone": self._undone,
        }
        known = [json.loads(each) for each in gather("who", json.dumps(mine).encode())]
        epoch = 1 + max(each["epoch"] for each in known)
        self._undo_to(completed_step, known)
        rounds = gather("round", b"%d" % self._running.session.round() if self._running is not None else b"")
        # Members of the last quorum continue. A replica that was not in it joins as a new member, and adds its residual
        # to its next gradient.
        positions = [(each["epoch"], int(r)) if r else None for r, each in zip(rounds, known, strict=True)]
        latest = max((each for each in positions if each is not None), default=None)
        is_member = [each is not None and each == latest for each in positions]
        names = [
            each["name"] if stay else f"{each['new']}@{epoch}" for each, stay in zip(known, is_member, strict=True)
        ]
        if self._running is not None and not is_member[rank]:
            self._rejoin(self._epoch < epoch - 1)
        common = b""
        # Collected before the session continues, while its state still has the former ranks
        if any(is_member) and not all(is_member):
            donor = is_member.index(True)
            common = gather("common", self._running.session.common_state() if rank == donor else b"")[donor]
        self._continue_with(rank, names, epoch, functools.partial(gather, "address"))
        if not is_member[rank] and common:
            self._running.session.restore_states([common], False)
        self._name, self._epoch = names[rank], epoch
        self._gloo_arguments = (dist.PrefixStore("gloo", store), rank, world_size)

    def _continue_with(
        self, rank: int, names: list[str], epoch: int, all_gather: Callable[[bytes], list[bytes]]
    ) -> None:
        options, running = make_options(self._session_options), self._running
        if running is None:
            options.members, options.epoch = names, epoch
            session = _core.open(self._transport, rank, len(names), all_gather, options)
            keys = ParameterKeys(self._names, {})
            self._running = RunningSession(session, Evaluations(options), keys, session.choices, options)
        else:
            running.continue_with(
                lambda: running.session.reform(
                    self._transport, rank, len(names), all_gather, names, epoch, options.timeout
                )
            )
            running.rank, running.world = rank, len(names)

    def _last_complete_step(self) -> int | None:
        """Returns the newest step if this replica has its result. Only all replicas together can decide if the step
        counted."""
        last = self._last
        if last is None:  # no step followed, or one that was abandoned before its last bucket
            return None
        self._running.drain()
        return self._step if last.error is None else None

    def _undo_to(self, completed_step: int | None, known: list[dict[str, Any]]) -> None:
        """Reverts the newest step if it counted on no replica: no replica is ahead of it, or a replica has reverted it.

        All replicas remember each reverted step, for replicas that return after the others have left.
        """
        farthest = max(each["step"] for each in known)
        undone = {
            each["epoch"] for each in known if each["completed_step"] is not None and farthest <= each["completed_step"]
        }
        self._undone = sorted(undone.union(*(each["undone"] for each in known)))[-_UNDONE:]
        previous, self._last, self._next_deferred = self._next_deferred, None, None
        if completed_step is None:
            return
        if self._epoch not in self._undone:
            self._deferred = previous
        elif not self._lossless:
            self._running.session.undo()

    def _now(self) -> int:
        manager = self._manager()
        return manager.current_step() if manager is not None else 0

    def _rejoin(self, missed_a_quorum: bool) -> None:
        deferred = {}
        if missed_a_quorum:
            deferred = self._deferred | {key: self._deferred.get(key, 0) + owed for key, owed in self._unsent().items()}
        else:
            _log.warning("%s missed a step that the others have: its residual is lost", self._name)
        self._close()
        self._deferred = deferred

    def _close(self) -> None:
        if self._running is not None:
            self._running.close()
        self._running, self._last, self._deferred, self._next_deferred = None, None, {}, None

    @property
    def parent(self) -> Any:
        # Gloo's group of the quorum, for collectives that tithe does not implement. Created at first use.
        if self._pg is None:
            assert self._gloo_arguments is not None, "no quorum yet"
            self._pg = super()._create_pg(*self._gloo_arguments)
        return self._pg

    def size(self) -> int:
        # The replicas in the quorum, including the healing ones.
        return self._running.world if self._running is not None else 1

    def getBackendName(self) -> str:
        return "torchft-tithe"

    def errored(self) -> Exception | None:
        # Manager.should_commit() asks for errors since the last quorum.
        running = self._running
        if running is None:
            return None
        if running.open:  # the other replicas wait for the step's remaining buckets
            self._give_up(error("cancelled", None, "this replica handed over a part of a step's buckets"))
        last = self._last
        # the manager gave up waiting, and the next step needs the bucket
        if last is not None and not last.future.done():
            self._give_up(error("timeout", None, "the manager's timeout ended this replica's wait for the others"))
            running.drain()
        return running.workers.causes[0] if running.workers.causes else last.error if last is not None else None

    def abort(self, errored: bool = True) -> None:
        if errored and self._running is not None:
            self._give_up(error("cancelled", None, "the process group was aborted"))
        super().abort(errored)

    def shutdown(self) -> None:
        self._close()
        super().shutdown()

    def _give_up(self, cause: Exception) -> None:
        running = self._running
        if running is not None and not running.workers.causes:
            end_session(running.session, running.workers.causes, cause)
            running.workers.put(Barrier())  # ends the buckets so far, since no other bucket follows

    # ---- a step

    def take(self, manager: Any, named: Iterable[tuple[str, torch.nn.Parameter]]) -> None:
        self._names.update(by_name(named))
        self._manager = weakref.ref(manager)

    def average(self, manager: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Replaces a bucket by its mean over the participants. Errors are reported to the manager."""
        values = bucket.buffer()
        try:
            manager.wait_quorum()  # even after an error: the group may change until this call returns
            if (before := manager.errored()) is not None:
                self._give_up(error("cancelled", None, f"this replica left the step: {before.original_exception}"))
                return _done(values)
            job = self._start(bucket, manager.is_participating())
        except Exception as why:
            self._give_up(why)
            manager.report_error(why)
            return _done(values)
        if bucket.is_last():
            self._running.open = False
            self._last, self._step = job, manager.current_step()
        count = manager.num_participants()

        def mean(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            return job.value(future).div_(count)

        return manager.wrap_future(job.future.then(mean), values)

    def _start(self, bucket: Any, takes_part: bool) -> Job:
        running = self._running
        if running is None:
            raise error("cancelled", None, "this replica is in no quorum")
        if not running.open:
            self._begin_step(takes_part)
        if not takes_part:
            bucket.buffer().zero_()
        if self._deferred or self._to_defer:
            self._defer(bucket, takes_part)
        return running.start_bucket(bucket, None)

    def _begin_step(self, takes_part: bool) -> None:
        if self._next_deferred is not None:  # the previous step counted
            self._deferred = self._next_deferred
        self._last, self._next_deferred = None, dict(self._deferred)
        self._to_defer = {} if takes_part else self._unsent()

    def _defer(self, bucket: Any, takes_part: bool) -> None:
        """Makes a healing replica send zeros: it hands over the negative of its residual. The residual is in gradient
        units, so a later gradient can contain it."""
        parts = bucket.buffer().split([parameter.numel() for parameter in bucket.parameters()])
        for parameter, part in zip(bucket.parameters(), parts, strict=True):
            key = self._running.keys.of(parameter)
            if takes_part and key in self._deferred:
                part.add_(self._deferred[key].to(part.device))
                self._next_deferred.pop(key, None)
            elif key in self._to_defer:
                owed = self._to_defer[key].to(part.dtype)
                part.sub_(owed.to(part.device))
                self._next_deferred[key] = self._deferred.get(key, 0) + owed.float()

    def _unsent(self) -> dict[str, torch.Tensor]:
        """Returns the session's residuals, by key."""
        running = self._running
        running.drain()  # the session takes one call at a time
        unsent = {}
        for key, parameter in running.keys.known.values():
            unsent[key] = torch.zeros(parameter.numel(), dtype=torch.float32)
            with contextlib.suppress(ValueError):  # no round contained the tensor
                running.session.residual(key, unsent[key].numpy())
        return unsent

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        # Tensors without names go through a lossless codec; with any other codec Gloo sends them uncompressed.
        if not self._is_compressed(tensors, opts):
            if not self._lossless and not self._warned and any(t.numel() >= _MANY for t in tensors):
                self._warned = True
                _log.warning(
                    "tensors without names travel uncompressed: gradients have names under "
                    "tithe.torchft.DistributedDataParallel, fragments under tithe.torchft.DiLoCo; for LocalSGD open "
                    "the group with a codec that loses nothing, such as zip"
                )
            return super().allreduce(tensors, opts)
        flat = tensors[0].detach().view(-1)
        looks = f"{flat.numel()} {DTYPES[flat.dtype]}"
        job = Job(0, _core.Layout([looks], [flat.numel()], DTYPES[flat.dtype]), BucketRoute(flat), last=True)
        self._running.send(job)
        self._running.drain()  # the next bucket is another round, on all ranks
        return Work(job.future.then(job.value), lambda: None)

    def _is_compressed(self, tensors: list[torch.Tensor], opts: Any) -> bool:
        kind = getattr(opts, "reduceOp", opts)
        return (
            self._lossless
            and self._running is not None
            and not self._running.open  # an additional round would end the open step
            and kind == dist.ReduceOp.SUM
            and len(tensors) == 1
            and tensors[0].dtype in DTYPES
            and tensors[0].is_cpu
            and tensors[0].is_contiguous()
            and tensors[0].numel() > 0
        )

    # ---- figures

    def residual(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """Returns this replica's residual of a parameter, float32, in the parameter's shape."""
        running = self._running
        if running is None:
            raise ValueError("this replica is in no quorum")
        running.drain()
        out, values = laid_out_like(parameter)
        key = running.keys.find(parameter)
        deferred = self._deferred if self._next_deferred is None else self._next_deferred
        try:
            running.session.residual(key, values.numpy())
        except ValueError:  # this session has had no round with the tensor
            if key not in deferred:
                raise
        if key in deferred:
            values.add_(deferred[key])
        return out

    def stats(self) -> dict[str, Any]:
        """Returns tithe.Session.stats() over all quorums; {} before the first."""
        running = self._running  # a quorum's thread may replace it
        return {} if running is None else summed_up(running.session)


class Work(dist.Work):
    """An exchange under way. wait() then calls `then`, which copies the exchanged values to the caller's tensors."""

    def __init__(self, future: torch.futures.Future[Any], then: Callable[[], None]) -> None:
        super().__init__()
        self._future, self._then = future, then

    def wait(self, timeout: Any = None) -> bool:
        self._future.wait()
        self._then()
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future


def _gather(store: Any, rank: int, world: int, what: str, mine: bytes) -> list[bytes]:
    """Returns the bytes of all ranks, by rank. Collective; fails if a rank does not write within the store's
    timeout."""
    store.set(f"tithe/{what}/{rank}", b"=" + mine)
    return [bytes(store.get(f"tithe/{what}/{r}"))[1:] for r in range(world)]


def _done(values: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(values)
    return future
