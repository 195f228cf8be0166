# SPDX-License-Identifier: Apache-2.0
"""Writes the lists of this folder, and their table in README.md, from recipes.py: `python data/models/make.py`.

Backward goes through a model's layers from last to first, and takes a time in proportion to their products; a layer's
tensors are ready when backward has passed it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recipes import (
    Layer,
    Tensor,
    alexnet,
    bert,
    gpt2,
    hdc,
    lstm,
    products,
    resnet,
    resnet_v2,
    transformer,
    ugatit,
    vgg,
    vit,
)

HERE = Path(__file__).resolve().parent

# Times that are not published: products per second of a V100 at 10 Tflop/s, two thirds of what it can.
V100 = 5e12
TRACED = "backward takes {:g} ms, as traced on one V100 (Espresso, EuroSys 2023)"
PROPORTION = "each tensor in proportion to the products that come before it (derived); forward half of backward"


@dataclass
class Model:
    what: str
    source: str
    times: str
    layers: list[Layer]
    backward_ms: float
    forward_ms: float = 0  # 0: half of backward


def traced(ms: float) -> str:
    return f"{TRACED.format(ms)}, {PROPORTION}"


def at_v100(layers: list[Layer], samples: float) -> float:
    """Backward's ms: two products for each of forward, one for the weights' and one for the inputs' gradient."""
    return round(2 * products(layers) * samples / V100 * 1e3, 3)


HIPRESS = "sizes as in table 6 of HiPress (SOSP 2021)"
TORCHVISION = "sizes as torchvision has them"
INCEPTIONN = "INCEPTIONN (MICRO 2018), from 100 iterations on a Titan Xp"


def models() -> dict[str, Model]:
    vgg16, vgg19 = vgg([2, 2, 3, 3, 3]), vgg([2, 2, 4, 4, 4])
    whole, light = ugatit(light=False), ugatit(light=True)
    words, patches, large = transformer(), vit(), gpt2(24, 2048)
    deeper = round(85 * products(vgg19) / products(vgg16), 3)
    lighter = round(434 * products(light) / products(whole), 3)
    published = f"forward and backward as published by {INCEPTIONN}; within backward {PROPORTION.split(';')[0]}"
    assumed = (
        "derived: backward takes two products for each of forward, on a V100 at 10 Tflop/s, {}; "
        f"{PROPORTION.replace(' (derived)', '')}"
    )
    return {
        "alexnet": Model("AlexNet for ImageNet", TORCHVISION, published, alexnet(), 162.2, 31.3),
        "bert_base": Model(
            "BERT-base with its pretraining heads, V=30522, H=768, 12 layers; the decoder shares the word embedding",
            f"{HIPRESS}, which counts the shared matrix once more",
            traced(66),
            bert(12, 768),
            66,
        ),
        "bert_large": Model(
            "BERT-large with its pretraining heads, V=30522, H=1024, 24 layers; the decoder shares the word embedding",
            f"{HIPRESS}, which counts the shared matrix once more",
            traced(204),
            bert(24, 1024),
            204,
        ),
        "gpt2": Model(
            "GPT-2 small, V=50257, H=768, 12 layers; the output shares the word embedding",
            "sizes as published with the model",
            traced(211),
            gpt2(),
            211,
        ),
        "gpt_1b": Model(
            "GPT-2's layers with H=2048, 24 layers, V=50257: 1.3 billion values",
            "by formula, in GPT-3 XL's width and depth",
            assumed.format("8192 tokens"),
            large,
            at_v100(large, 8192),
        ),
        "hdc": Model(
            "handwritten digits: 5 dense layers of 500 on MNIST", "INCEPTIONN (MICRO 2018)", published, hdc(), 0.7, 0.8
        ),
        "lstm": Model(
            "a language model of two LSTM layers of 1500 on WikiText-2; the decoder shares the word embedding",
            HIPRESS,
            traced(71) + "; the embedding 2.3 ms after the tensor before it, as traced",
            lstm(),
            71,
        ),
        "resnet50": Model("ResNet50 for ImageNet", TORCHVISION, traced(64), resnet([3, 4, 6, 3]), 64),
        "resnet50_v2": Model(
            "ResNet50 with pre-activation for ImageNet", HIPRESS, traced(64), resnet_v2([3, 4, 6, 3]), 64
        ),
        "resnet101": Model("ResNet101 for ImageNet", TORCHVISION, traced(120), resnet([3, 4, 23, 3]), 120),
        "transformer": Model(
            "Transformer base of tensor2tensor for translation, V=33708; input and output share their embedding",
            HIPRESS,
            assumed.format("2048 tokens"),
            words,
            at_v100(words, 2048),
        ),
        "ugatit": Model(
            "UGATIT for images of 256 x 256: two generators and four discriminators, the latter ready first",
            HIPRESS,
            traced(434),
            whole,
            434,
        ),
        "ugatit_light": Model(
            "UGATIT light: its two matrices of 268,435,456 values are of 65,536",
            HIPRESS,
            f"derived: backward in proportion to the products of ugatit, which takes 434 ms; {PROPORTION}",
            light,
            lighter,
        ),
        "vgg16": Model("VGG16 for ImageNet", TORCHVISION, traced(85), vgg16, 85),
        "vgg19": Model(
            "VGG19 for ImageNet",
            HIPRESS,
            f"derived: backward in proportion to the products of vgg16, which takes 85 ms; {PROPORTION}",
            vgg19,
            deeper,
        ),
        "vit_b_16": Model(
            "ViT-B/16 for ImageNet", TORCHVISION, assumed.format("32 images"), patches, at_v100(patches, 32)
        ),
    }


def ready(model: Model) -> Iterator[tuple[Tensor, float]]:
    """The tensors in the order in which backward leaves them, with the ms since it began."""
    total = products(model.layers)
    share = model.backward_ms - sum(layer.ms for layer in model.layers)
    passed = 0.0
    for layer in reversed(model.layers):
        passed += layer.ms + share * layer.products / total
        for tensor in reversed(layer.tensors):
            yield tensor, passed


def text_of(name: str, model: Model) -> str:
    head = {"model": name, "what": model.what, "source": model.source, "times": model.times}
    head["forward_ms"] = model.forward_ms or round(model.backward_ms / 2, 3)
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    rows = [
        f'  {{"name": "{t.name}", "values": {t.values}, "row": {t.row}, "ready_ms": {min(at, model.backward_ms):.3f}}}'
        for t, at in ready(model)
    ]
    return "\n".join(["{", *lines, ' "tensors": [', ",\n".join(rows), " ]", "}", ""])


def table_row(name: str, model: Model) -> str:
    values = [t.values for layer in model.layers for t in layer.tensors]
    small = sum(4 * n < 16 * 1024 for n in values) / len(values)
    forward = model.forward_ms or model.backward_ms / 2
    return (
        f"| [{name}.json]({name}.json) | {len(values)} | {sum(values):,} | {max(values):,} | {round(100 * small)} % "
        f"| {forward:.1f} | {model.backward_ms:.1f} |"
    )


def files() -> dict[str, str]:
    """The models of this folder, by name."""
    every = models()
    out = {f"{name}.json": text_of(name, model) for name, model in every.items()}
    readme = (HERE / "README.md").read_text()
    rows = "\n".join(table_row(name, model) for name, model in every.items())
    out["README.md"] = re.sub(r"(?<=\|\n)\| \[\w+\.json\].*\|(?=\n\n)", rows, readme, count=1, flags=re.DOTALL)
    return out


if __name__ == "__main__":
    for file, text in files().items():
        (HERE / file).write_text(text)
