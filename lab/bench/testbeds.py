# SPDX-License-Identifier: Apache-2.0
"""The testbeds of six papers, for published.py: their published rows, and settings of `tithe simulate` for the systems
of a row, each mechanism with its source."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

AT_ONCE = "--bucket-cap-mb 1000000"  # all gradients after backward: nothing is hidden
# INCEPTIONN: Gbit/s of an exchange. AlexNet's 244 MB took 1487 ms by WA, which is 7.9 Gbit/s by the paper's cost model
# of (p + log p) n beta; the link had 10. The paper scaled only the time of the link by the ratio.
MEASURED, NO_LINK = 8, 1 - 8 / 10
HOROVOD_FUSION = 64 << 20  # bytes, its default
BYTEPS_PARTITION = 4_096_000  # bytes, BytePS' default (BYTEPS_PARTITION_BYTES): each partition belongs to one server
BYTEPS_LEAST = 65_536  # bytes, its default (BYTEPS_MIN_COMPRESS_BYTES)
# "large": tensors of at least 2^18 values, which HiPress' release compresses; each is cut into one piece per host.
# "whole": all gradients as one vector. "fused": by Horovod's 64 MB. "partitions": BytePS' partitions, one to each host.
CHOICES = {
    "large": lambda what, _: {"< 256Ki": "fp32", "*": {**what, "part_values": 1 << 30}},
    "whole": lambda what, _: {"*": {**what, "part_values": 1 << 30, "group": "all"}},
    "fused": lambda what, _: {"*": {**what, "part_values": HOROVOD_FUSION // 4, "group": "all"}},
    "partitions": lambda what, ranks: {
        f"< {BYTEPS_LEAST // 4}": {"codec": "fp32", "group": "raw"},
        "*": {**what, "part_values": ranks * BYTEPS_PARTITION // 4, "group": "all"},
    },
}


@dataclass(frozen=True)
class Run:
    """A setting of `tithe simulate`.

    choices: one of CHOICES. rate: of a host's link, if this system reaches another rate than the cluster's file has.
    star: gradients are sent to the last rank, a server, by the codec, and weights return uncompressed by a tree. nccl:
    ranks are all devices of all hosts, and one kernel does all steps, so nothing is launched for each step. launches:
    each kernel of a codec is launched and awaited separately, where HiPress does so once for a batch. on_servers: a
    server decodes and adds on its processor. raw: the same setting without compression; NO_LINK, the part of its
    exchange that no link causes, stays.
    """

    codec: str
    strategy: str
    ranks: int
    more: str = ""
    choices: str = ""
    rate: str = ""
    star: bool = False
    nccl: bool = False
    launches: bool = False
    on_servers: bool = False
    raw: Run | None = None


@dataclass(frozen=True)
class Row:
    what: str
    model: str
    published: float  # time of `slow` over time of `fast`
    slow: Run
    fast: Run
    lacks: str  # mechanisms that the model lacks, if the gains differ
    communication: bool = False  # the gain concerns only the communication after computing


@dataclass
class Testbed:
    cluster: str
    source: str
    how: str
    rows: list[Row]
    single: bool = False  # a host is one rank
    models: dict[str, dict] = field(default_factory=dict)  # models that data/models/ does not have


# ---- HiPress, figures 7 and 8 (the plotting scripts' numbers): throughput at 16, 32, 64 and 128 GPUs

GPUS = (16, 32, 64, 128)
EC2 = {
    "vgg19": {
        "BytePS": (1563, 2954, 5800, 11165),
        "Ring": (2349, 4369, 8157, 14655),
        "BytePS-onebit": (2548, 4424, 8058, 13865),
        "HiPress": (3143, 6163, 12170, 23507),
    },
    "bert_large": {
        "BytePS": (63615, 123287, 239858, 474815),
        "Ring": (67834, 127391, 234441, 435945),
        "BytePS-onebit": (67913, 129593, 256815, 509359),
        "HiPress": (80617, 162961, 319001, 628083),
    },
    "resnet50_v2": {
        "BytePS": (4619, 8888, 17503, 32198),
        "Ring": (4797, 9254, 18099, 33133),
        "Ring-DGC": (4757, 9125, 17963, 33168),
        "HiPress": (5061, 10009, 19652, 38864),
    },
}
BYTEPS = "summing on the servers' processors and copies between device and host, neither of them published"
RING = (
    "what NCCL's kernels take from the GPU that computes beside them, which was not published: here all but 10 to 70 "
    "ms of VGG19's exchange are beside backward, there 63 to 124 came after it"
)


def nccl_rate(hosts: int) -> str:
    """Returns the rate over EFA on p3dn.24xlarge: 80 Gbit/s on 2 hosts, 50 to 60 on 8 to 32 (NVIDIA/nccl#235); with 4,
    between."""
    return f"{80 - 25 * min(1, math.log2(hosts / 2) / 2):g}Gb/s"


OSS = (
    "what else BytePS' servers do with compressed payloads: decoding at the one rate that was published for a "
    "processor, kernels launched for each partition and bytes by TCP leave 1 to 47 ms here that are not beside "
    "backward; there were 46 to 140 (VGG19) and 178 to 242 (Bert-large), more with each further host as here"
)
DGC = (
    "what DGC's kernels gain from batches, and that a ring under law concat sends each payload on as it is: 1.5 (N-1) "
    "of them where `gather` sends N-1"
)


def byteps_rate(hosts: int) -> str:
    """Returns the share of a BytePS host's link that remains for other hosts.

    A worker and the server on its own host send each other as much as any other pair, through the same stack: shared
    memory between them exists only for RDMA and is off by default (BytePS' ps-lite, src/rdma_van.h; src/zmq_van.h, for
    TCP, has none). BytePS had no RDMA here, and HiPress sends nothing to a worker's own aggregator (6.1 for both). So
    only a share of the rate of a host is left for other hosts.
    """
    return f"{30 * (hosts - 1) / hosts:g}Gb/s"


def lacking(system: str, model: str) -> str:
    if system == "Ring":
        return DGC if model == "resnet50_v2" else RING
    return {"BytePS": DGC if model == "resnet50_v2" else BYTEPS, "BytePS-onebit": OSS, "Ring-DGC": DGC}[system]


def hipress_ec2() -> Testbed:
    """The testbed of HiPress on EC2: figures 7 and 8."""
    rows = []
    # Nothing is computed while Ring transmits Bert-large: the utilisation of its GPUs is then 0 (figure 9).
    beside, after = ("--bucket-cap-mb 64", "whole"), (AT_ONCE, "fused")
    buckets = {"vgg19": beside, "bert_large": after, "resnet50_v2": beside}
    for model, systems in EC2.items():
        codec, strategy = ("dgc:ratio=0.001", "ring") if model == "resnet50_v2" else ("onebit", "server")
        for system, throughputs in systems.items():
            for k, gpus in enumerate(GPUS):
                slow = {
                    "BytePS": Run("fp32", "server", gpus // 8, rate=byteps_rate(gpus // 8)),
                    "Ring": Run("fp32", "ring", gpus, *buckets[model], rate=nccl_rate(gpus // 8), nccl=True),
                    "BytePS-onebit": Run(
                        "onebit",
                        "server",
                        gpus // 8,
                        f"--bucket-cap-mb {gpus // 8 * BYTEPS_PARTITION / 1e6}",
                        "partitions",
                        rate=byteps_rate(gpus // 8),
                        launches=True,
                        on_servers=True,
                    ),
                    "Ring-DGC": Run("dgc:ratio=0.001", "gather", gpus // 8, "--bucket-cap-mb 0.001", launches=True),
                }
                if system not in slow:
                    continue
                gain = systems["HiPress"][k] / throughputs[k]
                fast = Run(codec, strategy, gpus // 8, choices="large")
                rows.append(
                    Row(f"HiPress over {system}, {gpus} GPUs", model, gain, slow[system], fast, lacking(system, model))
                )
    return Testbed(
        "hipress_ec2",
        "HiPress (SOSP 2021), figures 7 and 8",
        "A host is one rank: HiPress adds up inside it first, over NVLink, which is left out; but in Ring, where the "
        "paper turned that off: NCCL's ring at NCCL's rate, of Horovod's 64 MB at a time. BytePS is fp32 by `server`, "
        "Ring fp32 by `ring`, HiPress onebit by `server` or DGC by `ring` from 2^18 values on, each tensor cut into as "
        "many pieces as there are hosts; the open-source systems launch each kernel by itself, onebit for each of "
        "BytePS' partitions of 4 MB, by TCP and with servers on processors, DGC for each tensor. BytePS' worker sends "
        "to its own host's server too.",
        rows,
        single=True,
    )


def hipress_local() -> Testbed:
    onebit = Run("onebit", "hosts", 32, choices="large")
    rows = [
        Row(
            "all of HiPress over BytePS (703 and 303 ms)",
            "vgg19",
            703 / 303,
            Run("fp32", "hosts", 32),
            onebit,
            "what keeps BytePS from the link's 37.6 Gbit/s: 590 ms for 1.08 GB are 14.6",
        ),
        Row(
            "all of HiPress over its codec without pipelining (462 and 303 ms)",
            "vgg19",
            462 / 303,
            Run("onebit", "hosts", 32, AT_ONCE),
            onebit,
            "kernels of codecs that wait for those of backward, and copies to the host and back: the codec alone left "
            "346 ms of exchange; its bytes take 8 ms of the link, and the sums over PCIe 58",
        ),
    ]
    return Testbed(
        "hipress_local",
        "HiPress (SOSP 2021), figure 11",
        "The two devices of a host add their raw gradients first, over PCIe (5 of the paper). The row of a codec on "
        "the CPU is left out, since it needs a second set of constants, and so are those in between: their "
        "coordinator's work is in this engine's order always.",
        rows,
    )


def dragonn() -> Testbed:
    """The testbed of DRAGONN."""
    full, ranks = Run("fp32", "ring", 16), 16
    dgc = Run("dgc:ratio=0.001", "gather", ranks)
    hashed = Run("dragonn:ratio=0.001", "gather", ranks)
    slow = (
        "what held Horovod's all-reduce to 4 to 7 Gbit/s of 25 (356 ms more than computing for ResNet50, 726 for ViT), "
        "where XML's one tensor had 17 by the same one: some 2 ms for each of 150 tensors, of which nothing is said"
    )
    kernels = (
        "the launch of kernels and the sampling of the threshold, which cost both the same per tensor: not published"
    )
    rows = [
        Row("DGC over none, 16 GPUs", "resnet50", 1.68, full, dgc, slow),
        Row("DRAGONN over none, 16 GPUs", "resnet50", 2.40, full, hashed, slow),
        Row("DRAGONN over DGC, 16 GPUs", "resnet50", 2.40 / 1.68, dgc, hashed, kernels),
        Row("DGC over none, 16 GPUs", "vit_b_16", 2.14, full, dgc, slow),
        Row("DRAGONN over none, 16 GPUs", "vit_b_16", 2.61, full, hashed, slow),
        Row("DRAGONN over DGC, 16 GPUs", "vit_b_16", 2.61 / 2.14, dgc, hashed, kernels),
        Row("DGC over none, 16 GPUs (read off)", "xml", 0.92 / 0.09, full, dgc, slow),
        Row("DRAGONN over none, 16 GPUs (read off)", "xml", 2.0 / 0.09, full, hashed, slow),
        Row("DRAGONN over DGC, 16 GPUs", "xml", 2.2, dgc, hashed, kernels),
    ]
    third = 12.6 / 3
    xml = {
        "model": "xml",
        "forward_ms": third,
        "tensors": [{"name": "weight", "values": 4096 * 30938, "row": 4096, "ready_ms": 2 * third}],
    }
    return Testbed(
        "dragonn",
        "DRAGONN (ICML 2022), figure 3 and table 2",
        "None is fp32 by `ring`, the others by `gather` at a ratio of 0.001. MLP-Mixer is left out: data/models/ has "
        "no such list.",
        rows,
        models={"xml": xml},
    )


def fft_comet() -> Testbed:
    none = Run("fp32", "ring", 8, AT_ONCE, "whole")
    decodes = (
        "the paper's gain contradicts its own cost model, which is taken here: it leaves 8 ms (FFT) for encoding, "
        "exchange and decoding, and the model has 34 for encoding and decoding alone; and it does not count the bytes "
        "of a top-k's indices"
    )
    range_free = "where the time of these codecs goes, which was not published"
    codecs = [
        ("FFT", 2.26, "fft:bits=10", decodes),
        ("Top-k", 1.53, "topk:ratio=0.15", decodes),
        ("QSGD", 1.73, "qsgd:bits=3", range_free),
        ("TernGrad", 1.81, "terngrad", range_free),
    ]
    # NCCL's all-gather is a ring: a host's link carries all payloads but one, 7 of them. `gather` sends each of a
    # host's four payloads to each of four ranks.
    crossing = f"{56 * 16 / 7:g}Gb/s"
    rows = [
        Row(f"{name} over none", "alexnet", gain, none, Run(codec, "gather", 8, AT_ONCE, "whole", crossing), lacks)
        for name, gain, codec, lacks in codecs
    ]
    return Testbed(
        "fft_comet",
        "FFT-based gradient sparsification (HPDC 2020), table of accuracy and speed",
        "8 GPUs on two nodes. All gradients are exchanged at once after backward, none by `ring`, the others by "
        "`gather`, with links as a ring of payloads uses them. ResNet32 is left out: its gradients have 6 MB in one "
        "place and 102 in another.",
        rows,
    )


def inceptionn() -> Testbed:
    """The testbed of INCEPTIONN."""
    # Weights are sent by a broadcast: the paper's cost model has (p + log p) n beta for both directions of p workers.
    star = Run("fp32", "server", 5, f"--servers 1 {AT_ONCE}", "whole", rate=f"{MEASURED}Gb/s", star=True)
    # Algorithm 1 receives a block before it sends the next one, so a link is used in one direction at a time.
    ring = Run("fp32", "ring", 4, AT_ONCE, "whole", rate=f"{MEASURED / 2}Gb/s")
    ring_c = replace(ring, codec="inceptionn", rate="5Gb/s", raw=ring)
    # The aggregator sends weights, which are not compressed (figure 1 of the paper: gradients up, weights down).
    star_c = replace(star, codec="inceptionn", rate="10Gb/s", raw=star)
    raw = (
        "WA+C and INC+C were not run, since the card reached 2.1 Gbit/s: the paper scaled the link's part of the "
        "measured time by the ratio, and did not say how large that part is; here it is what 10 Gbit/s take"
    )
    hops = (
        "what the ring loses beside sending in turn: it lost most for VGG-16, whose exchange by WA also had 4.5 Gbit/s "
        "where the others had 8; no cause was published"
    )
    parts = {"alexnet": (0.79, 0.485, 1 / 3.1), "hdc:scale=0.544": (0.775, 0.62, 1 / 2.66)}
    rows = []
    for model, (wa_c, inc, inc_c) in parts.items():
        rows += [
            Row("WA+C over WA, 4 workers", model, 1 / wa_c, star, star_c, raw),
            Row("INC over WA", model, 1 / inc, star, ring, hops),
            Row("INC+C over WA", model, 1 / inc_c, star, ring_c, raw),
        ]
    less = {"alexnet": 0.55, "hdc:scale=0.544": 0.39, "resnet50": 0.58, "vgg16": 0.36}
    for model, share in less.items():
        rows.append(Row("INC's exchange over WA's", model, 1 / (1 - share), star, ring, hops, communication=True))
    for workers, wa in ((6, 1.4), (8, 1.75)):
        more = replace(star, ranks=workers + 1)
        rows.append(
            Row(
                f"WA's exchange among 4 workers over that among {workers}",
                "alexnet",
                wa,
                more,
                star,
                "",
                communication=True,
            ),
        )
    for workers, inc in ((6, 0.40 / 0.35), (8, 0.42 / 0.35)):
        more = replace(ring, ranks=workers)
        rows.append(
            Row(
                f"INC's exchange among 4 workers over that among {workers}",
                "alexnet",
                inc,
                more,
                ring,
                "",
                communication=True,
            ),
        )
    return Testbed(
        "inceptionn",
        "INCEPTIONN (MICRO 2018), figures 12, 14 and 15",
        "All gradients are exchanged at once after backward. WA is fp32 by `server` with a server of its own, INC fp32 "
        "by `ring` at half the rate, INC+C inceptionn likewise; WA+C compresses one way. Weights come down by a tree, "
        "as in the paper's cost model. Of 10 Gbit/s an exchange had 8; the fifth of its time that is no link time "
        "stays where payloads shrink. HDC has the paper's 2.5 MB.",
        rows,
    )


def sdp4bit() -> Testbed:
    """The testbed of SDP4Bit with 64 A100; its other models and its InfiniBand testbed are left out."""

    def whole(name: str, values: int) -> dict:
        # One tensor: Megatron-LM reduces gradients after backward and gathers weights after the step.
        tensor = {"name": "weights", "values": values, "row": values, "ready_ms": 2}
        return {"model": name, "forward_ms": 1, "tensors": [tensor]}

    models = {name: whole(name, values) for name, values in (("gpt_1.3b", 1_313_626_112), ("gpt_2.7b", 2_651_307_520))}
    none = Run("fp32", "hosts", 64, "--sharded zero2 --weights bf16")
    four = replace(none, codec="eden:bits=4,scale=unbiased", more="--sharded zero2 --weights minmax:bits=4")
    return Testbed(
        "sdp4bit",
        "SDP4Bit (NeurIPS 2024), table 2, 4xA100",
        "None is fp32 gradients and bf16 weights, the other 4 bits of both: gradients by `hosts`, which adds raw "
        "values inside a host where the paper sends 8 bits. Nothing is hidden behind computing. Left out: models with "
        "tensor or pipeline parallelism, and 8xH800, where the exchange of the baseline takes ten times as long as its "
        "links need.",
        [
            Row("SDP4Bit over Megatron-LM, 64 GPUs", "gpt_1.3b", 2.39, none, four, ""),
            Row("SDP4Bit over Megatron-LM, 64 GPUs", "gpt_2.7b", 2.43, none, four, ""),
        ],
        models=models,
    )
