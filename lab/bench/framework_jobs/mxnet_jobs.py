# SPDX-License-Identifier: Apache-2.0
"""MXNet 1.9: its own kvstore dist_sync with a server on each host, beside the Trainer of examples/train_mxnet.py."""

import os
import subprocess
import sys
from pathlib import Path

import common

OWN = "own" in sys.argv
if OWN:  # read when MXNet is imported
    os.environ |= {
        "DMLC_PS_ROOT_URI": os.environ["MASTER_ADDR"],
        "DMLC_PS_ROOT_PORT": "29700",
        "DMLC_NUM_WORKER": str(common.WORLD),
        "DMLC_NUM_SERVER": str(common.WORLD),
        "DMLC_INTERFACE": "eth0",
        "MXNET_KVSTORE_BIGARRAY_BOUND": "10000",  # larger arrays are spread over all servers
        "DMLC_ROLE": "worker",
    }
    roles = ["server"] + ["scheduler"] * (common.RANK == 0)
    others = [
        subprocess.Popen(
            [sys.executable, "-c", "import mxnet"], env={**os.environ, "DMLC_ROLE": role}, stdout=subprocess.DEVNULL
        )
        for role in roles
    ]

import mxnet as mx  # noqa: E402

import tithe  # noqa: E402

sys.path.append(str(Path(__file__).parents[3] / "examples"))
import train_mxnet  # noqa: E402


def train(make):
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        for i, o, kind in zip(common.SIZES, common.SIZES[1:], ("relu", "relu", None), strict=False):
            net.add(mx.gluon.nn.Dense(o, kind, in_units=i))
    net.initialize()
    for layer, w in zip(net, common.weights(), strict=True):
        layer.weight.set_data(mx.nd.array(w.T))
    net.hybridize()
    trainer = make(net.collect_params(), "adam", {"learning_rate": common.RATE})
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    def step(number):
        x, y = common.batch(number)
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(x)), mx.nd.array(y))
        loss.backward()
        trainer.step(common.BATCH * common.WORLD)
        mx.nd.waitall()

    return common.timed(step, lambda: net(mx.nd.array(common.held_out()[0])).asnumpy())


def own():
    return train(lambda *given: mx.gluon.Trainer(*given, kvstore="dist_sync", update_on_kvstore=False))


def ours():
    with tithe.Session.from_environment(average=False, patience=600.0) as train_mxnet.session:
        return train(lambda *given: train_mxnet.Trainer(*given, kvstore=None))


common.main({"mxnet": {"own": own, "tithe": ours}})
if OWN:
    sys.stdout.flush()
    os._exit(0)  # servers end with their parent
