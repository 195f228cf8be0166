# SPDX-License-Identifier: Apache-2.0
"""Models as layers in the order of forward: what each is made of, and how many products (multiplications of a weight)
it takes in forward for one sample."""

from dataclasses import dataclass


@dataclass
class Tensor:
    name: str
    values: int
    row: int


@dataclass
class Layer:
    tensors: list[Tensor]
    products: float = 0
    ms: float = 0  # instead of the products, where a trace says so


def vector(name: str, n: int) -> Tensor:
    return Tensor(name, n, n)


def matrix(name: str, rows: int, row: int) -> Tensor:
    return Tensor(name, rows * row, row)


def dense(name: str, rows: int, row: int, *, times: float = 1, bias: bool = True) -> Layer:
    """A matrix that is multiplied with `times` vectors per sample; a convolution is one, with a vector per output."""
    tensors = [matrix(f"{name}.weight", rows, row)] + [vector(f"{name}.bias", rows)] * bias
    return Layer(tensors, times * rows * row)


def norm(name: str, n: int) -> Layer:
    return Layer([vector(f"{name}.weight", n), vector(f"{name}.bias", n)])


def products(layers: list[Layer]) -> float:
    return sum(layer.products for layer in layers)


def vgg(counts: list[int]) -> list[Layer]:
    layers, inputs, side, number = [], 3, 224, 0
    for channels, count in zip((64, 128, 256, 512, 512), counts, strict=True):
        for _ in range(count):
            layers.append(dense(f"features.{number}", channels, 9 * inputs, times=side * side))
            inputs = channels
            number += 2  # a ReLU stands between
        side //= 2
        number += 1  # a pooling
    for number, rows, row in ((0, 4096, 25088), (3, 4096, 4096), (6, 1000, 4096)):
        layers.append(dense(f"classifier.{number}", rows, row))
    return layers


def resnet(blocks: list[int]) -> list[Layer]:
    """As torchvision has it: a norm behind each convolution."""
    layers = [dense("conv1", 64, 147, times=112**2, bias=False), norm("bn1", 64)]
    inputs, side = 64, 56
    for stage, (mid, count) in enumerate(zip((64, 128, 256, 512), blocks, strict=True)):
        for k in range(count):
            name = f"layer{stage + 1}.{k}"
            before = side * 2 if stage and k == 0 else side
            layers += [dense(f"{name}.conv1", mid, inputs, times=before**2, bias=False), norm(f"{name}.bn1", mid)]
            layers += [dense(f"{name}.conv2", mid, 9 * mid, times=side**2, bias=False), norm(f"{name}.bn2", mid)]
            layers += [dense(f"{name}.conv3", 4 * mid, mid, times=side**2, bias=False), norm(f"{name}.bn3", 4 * mid)]
            if k == 0:
                layers.append(dense(f"{name}.downsample.0", 4 * mid, inputs, times=side**2, bias=False))
                layers.append(norm(f"{name}.downsample.1", 4 * mid))
            inputs = 4 * mid
        side //= 2
    return [*layers, dense("fc", 1000, 2048)]


def resnet_v2(blocks: list[int]) -> list[Layer]:
    """Pre-activation: a norm before each convolution."""
    layers = [dense("stem", 64, 147, times=112**2, bias=False), norm("stem.bn", 64)]
    inputs, side = 64, 56
    for stage, (mid, count) in enumerate(zip((64, 128, 256, 512), blocks, strict=True)):
        for k in range(count):
            name = f"stage{stage + 1}.{k}"
            before = side * 2 if stage and k == 0 else side
            layers.append(norm(f"{name}.bn1", inputs))
            layers += [dense(f"{name}.conv1", mid, inputs, times=before**2, bias=False), norm(f"{name}.bn2", mid)]
            layers += [dense(f"{name}.conv2", mid, 9 * mid, times=side**2, bias=False), norm(f"{name}.bn3", mid)]
            layers.append(dense(f"{name}.conv3", 4 * mid, mid, times=side**2, bias=False))
            if k == 0:
                layers.append(dense(f"{name}.shortcut", 4 * mid, inputs, times=side**2, bias=False))
            inputs = 4 * mid
        side //= 2
    return [*layers, norm("bn", 2048), dense("fc", 1000, 2048)]


def alexnet() -> list[Layer]:
    shapes = ((0, 64, 3 * 121, 55), (3, 192, 64 * 25, 27), (6, 384, 192 * 9, 13), (8, 256, 384 * 9, 13))
    layers = [dense(f"features.{k}", rows, row, times=side**2) for k, rows, row, side in shapes]
    layers.append(dense("features.10", 256, 256 * 9, times=13**2))
    return layers + [
        dense(f"classifier.{k}", *shape) for k, *shape in ((1, 4096, 9216), (4, 4096, 4096), (6, 1000, 4096))
    ]


def hdc() -> list[Layer]:
    return [dense(f"fc{k}", rows, 784 if k == 1 else 500) for k, rows in enumerate((500, 500, 500, 500, 10), 1)]


def bert(depth: int, width: int, words: int = 30522, sequence: int = 128) -> list[Layer]:
    emb = "bert.embeddings"
    layers = [
        Layer([matrix(f"{emb}.word_embeddings.weight", words, width)]),
        Layer([matrix(f"{emb}.position_embeddings.weight", 512, width)]),
        Layer([matrix(f"{emb}.token_type_embeddings.weight", 2, width)]),
        norm(f"{emb}.LayerNorm", width),
    ]
    for k in range(depth):
        name = f"bert.encoder.layer.{k}"
        layers += [dense(f"{name}.attention.self.{part}", width, width) for part in ("query", "key", "value")]
        layers += [
            dense(f"{name}.attention.output.dense", width, width),
            norm(f"{name}.attention.output.LayerNorm", width),
        ]
        layers += [
            dense(f"{name}.intermediate.dense", 4 * width, width),
            dense(f"{name}.output.dense", width, 4 * width),
        ]
        layers.append(norm(f"{name}.output.LayerNorm", width))
    head = "cls.predictions"
    return [
        *layers,
        dense("bert.pooler.dense", width, width, times=1 / sequence),  # of the first token alone, as the next one
        dense(f"{head}.transform.dense", width, width),
        norm(f"{head}.transform.LayerNorm", width),
        dense("cls.seq_relationship", 2, width, times=1 / sequence),
        Layer([vector(f"{head}.bias", words)], words * width),  # its matrix is the word embedding
    ]


def gpt2(depth: int = 12, width: int = 768, words: int = 50257) -> list[Layer]:
    layers = [Layer([matrix("wte.weight", words, width)]), Layer([matrix("wpe.weight", 1024, width)])]

    def conv(name: str, inputs: int, outputs: int) -> Layer:  # GPT-2 keeps its matrices transposed
        return Layer([matrix(f"{name}.weight", inputs, outputs), vector(f"{name}.bias", outputs)], inputs * outputs)

    for k in range(depth):
        layers += [norm(f"h.{k}.ln_1", width), conv(f"h.{k}.attn.c_attn", width, 3 * width)]
        layers += [conv(f"h.{k}.attn.c_proj", width, width), norm(f"h.{k}.ln_2", width)]
        layers += [conv(f"h.{k}.mlp.c_fc", width, 4 * width), conv(f"h.{k}.mlp.c_proj", 4 * width, width)]
    return [*layers, norm("ln_f", width), Layer([], words * width)]  # the output shares the word embedding


def lstm(words: int = 33278, width: int = 1500) -> list[Layer]:
    layers = [Layer([matrix("encoder.weight", words, width)], ms=2.3)]  # so the trace; the decoder shares it
    for k in range(2):
        weights = [matrix(f"rnn.weight_{part}_l{k}", 4 * width, width) for part in ("ih", "hh")]
        biases = [vector(f"rnn.bias_{part}_l{k}", 4 * width) for part in ("ih", "hh")]
        layers.append(Layer(weights + biases, 8 * width * width))
    return [*layers, Layer([vector("decoder.bias", words)], words * width)]


def transformer(width: int = 512, inner: int = 2048, words: int = 33708) -> list[Layer]:
    def attention(name: str) -> list[Layer]:
        return [dense(f"{name}.{part}", width, width, bias=False) for part in "qkvo"]

    layers = [Layer([matrix("shared_embedding", words, width)])]
    for side, attentions in (("encoder", ["self"]), ("decoder", ["self", "cross"])):
        for k in range(6):
            name = f"{side}.{k}"
            for a in attentions:
                layers += [norm(f"{name}.{a}.norm", width), *attention(f"{name}.{a}")]
            layers += [norm(f"{name}.ffn.norm", width)]
            layers += [dense(f"{name}.ffn.1", inner, width), dense(f"{name}.ffn.2", width, inner)]
        layers.append(norm(f"{side}.norm", width))
    return [*layers, Layer([], words * width)]  # the output shares the embedding


def ugatit(light: bool) -> list[Layer]:
    """Generators first, as if one backward went through discriminators and then generators: two are what it is."""

    def generator(name: str) -> list[Layer]:
        passes = 3  # translation, cycle, identity

        def conv(part: str, rows: int, row: int, side: int, bias: bool = False) -> Layer:
            return dense(f"{name}.{part}", rows, row, times=passes * side**2, bias=bias)

        layers = [conv("down.0", 64, 147, 256), conv("down.1", 128, 576, 128), conv("down.2", 256, 1152, 64)]
        layers += [conv(f"block{k}.conv{j}", 256, 2304, 64) for k in range(4) for j in (1, 2)]
        layers += [conv("cam.gap", 1, 256, 1), conv("cam.gmp", 1, 256, 1), conv("cam.conv", 256, 512, 64, bias=True)]
        layers += [conv("fc.0", 256, 256 if light else 256 * 64**2, 1), conv("fc.1", 256, 256, 1)]
        layers += [conv("gamma", 256, 256, 1), conv("beta", 256, 256, 1)]
        for k in range(4):
            for j in (1, 2):
                layers += [conv(f"up1.{k}.conv{j}", 256, 2304, 64)]
                layers += [Layer([vector(f"{name}.up1.{k}.norm{j}.rho", 256)])]
        for k, (rows, row, side) in enumerate(((128, 2304, 128), (64, 1152, 256))):
            layers += [conv(f"up2.{k}.conv", rows, row, side)]
            layers += [Layer([vector(f"{name}.up2.{k}.norm.{part}", rows) for part in ("rho", "gamma", "beta")])]
        return [*layers, conv("up2.out", 3, 3136, 256)]

    def discriminator(name: str, depth: int) -> list[Layer]:
        passes = 2  # of what is real and what is not

        def conv(part: str, rows: int, row: int, side: float, bias: bool = True) -> Layer:
            return dense(f"{name}.{part}", rows, row, times=passes * side**2, bias=bias)

        side, channels = 128, 64
        layers = [conv("model.0", channels, 48, side)]
        for k in range(1, depth - 2):
            side //= 2
            layers.append(conv(f"model.{k}", 2 * channels, 16 * channels, side))
            channels *= 2
        side -= 1
        layers.append(conv(f"model.{depth - 2}", 2 * channels, 16 * channels, side))
        channels *= 2
        layers += [conv("cam.gap", 1, channels, 1, bias=False), conv("cam.gmp", 1, channels, 1, bias=False)]
        layers += [conv("cam.conv", channels, 2 * channels, side)]
        return [*layers, conv("out", 1, 16 * channels, side - 1, bias=False)]

    # In this order backward comes to the discriminators first: they are trained before the generators.
    layers = generator("genA2B") + generator("genB2A")
    for name, depth in (("disGA", 7), ("disGB", 7), ("disLA", 5), ("disLB", 5)):
        layers += discriminator(name, depth)
    return layers


def vit(width: int = 768, patches: int = 196) -> list[Layer]:
    tokens = patches + 1
    layers = [
        Layer([vector("class_token", width)]),
        dense("conv_proj", width, 768, times=patches),
        Layer([matrix("encoder.pos_embedding", tokens, width)]),
    ]
    for k in range(12):
        name = f"encoder.layers.{k}"
        inside = dense(f"{name}.self_attention.in_proj", 3 * width, width, times=tokens)
        layers += [norm(f"{name}.ln_1", width), inside]
        layers += [dense(f"{name}.self_attention.out_proj", width, width, times=tokens), norm(f"{name}.ln_2", width)]
        layers += [dense(f"{name}.mlp.0", 4 * width, width, times=tokens)]
        layers += [dense(f"{name}.mlp.3", width, 4 * width, times=tokens)]
    return [*layers, norm("encoder.ln", width), dense("heads.head", 1000, width)]
