# SPDX-License-Identifier: Apache-2.0
"""MXNet 1.9's gluon with a Trainer whose gradients are summed over processes by tithe, all of a step in one round.

torchrun, mpirun or Slurm start it; by hand: RANK=0 WORLD_SIZE=2 TITHE_FILE=/tmp/meet python examples/train_mxnet.py &
                                             RANK=1 WORLD_SIZE=2 TITHE_FILE=/tmp/meet python examples/train_mxnet.py
"""

import mxnet as mx

import tithe


class Trainer(mx.gluon.Trainer):
    def _allreduce_grads(self):
        grads = {p.name: p.list_grad()[0] for p in self._params if p.grad_req != "null"}
        arrays = {name: grad.asnumpy() for name, grad in grads.items()}
        session.wait(session.sync(arrays))
        session.commit()
        for name, grad in grads.items():
            grad[:] = arrays[name]


if __name__ == "__main__":
    session = tithe.Session.from_environment(codec="fp8", average=False)  # step() divides by the batch of all ranks
    mx.random.seed(0)  # the same weights on all ranks
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(512, "relu", in_units=256), mx.gluon.nn.Dense(10, in_units=512))
    net.initialize(mx.init.Xavier())
    trainer = Trainer(net.collect_params(), "adam", {"learning_rate": 3e-3}, kvstore=None)
    loss_of, truth = mx.gluon.loss.SoftmaxCrossEntropyLoss(), mx.nd.random.normal(shape=(256, 10))
    mx.random.seed(1 + session.rank)
    losses = []
    for _ in range(40):
        data = mx.nd.random.normal(shape=(64, 256))
        with mx.autograd.record():
            loss = loss_of(net(data), mx.nd.dot(data, truth).argmax(axis=1))
        loss.backward()
        trainer.step(64 * session.world)
        losses.append(loss.mean().asscalar())
    if session.rank == 0:
        sent = session.stats()
        print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {sent['bytes_sent']:,} bytes, not {sent['dense_bytes']:,}")
    session.close()
