"""Whether fewer bits translate faster: one model in float32, bfloat16 and int8, in turns.

    python benchmarks/translation_precision.py RUN --source DATA/test_2016_flickr.en.gz \
        --target DATA/test_2016_flickr.de.gz --threads 2

"bf16 weights" has every parameter in bfloat16, "bf16 products" is torch's autocast over float32 parameters,
"int8 weights" and "int8 products" are torchao's, if it is installed: weights alone in 8 bits, or the
activations as well. Each translates the same lines with beam 5; seconds are the median of the rounds.
"""

import argparse
import copy
import io
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headlights.translation.corpus import read_lines
from headlights.translation.evaluation import bleu
from headlights.translation.translator import Translator

Variant = tuple[Translator, Callable[[], Any]]


def variants(folder: Path) -> dict[str, Variant]:
    """Each way to compute: its translator, and the context to translate in."""
    found: dict[str, Variant] = {"float32": (Translator.load(folder, device="cpu"), nullcontext)}
    short = Translator.load(folder, device="cpu")
    short.model.to(torch.bfloat16)
    found["bf16 weights"] = (short, nullcontext)
    products = partial(torch.autocast, "cpu", torch.bfloat16)
    found["bf16 products"] = (Translator.load(folder, device="cpu"), products)
    for name, make in _int8().items():
        translator = Translator.load(folder, device="cpu")
        make(translator.model)
        found[name] = (translator, nullcontext)
    return found


def _int8() -> dict[str, Callable[[nn.Module], None]]:
    try:
        from torchao import quantization  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415
    except ImportError:
        print("torchao is not installed: no int8")
        return {}
    kinds = {
        "int8 weights": quantization.Int8WeightOnlyConfig(),
        "int8 products": quantization.Int8DynamicActivationInt8WeightConfig(),
    }
    return {name: partial(quantization.quantize_, config=config) for name, config in kinds.items()}


def size_mib(model: nn.Module) -> float:
    """What the parameters take when saved, in MiB; shared ones once."""
    stream = io.BytesIO()
    torch.save(copy.deepcopy(model).state_dict(), stream)
    return len(stream.getvalue()) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="a run or model folder")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    source, reference = list(read_lines(options.source)), list(read_lines(options.target))
    all_of_them = variants(options.run)
    seconds: dict[str, list[float]] = {name: [] for name in all_of_them}
    texts: dict[str, list[str]] = {}
    for round_ in range(options.rounds + 1):  # the first warms up
        for name, (translator, context) in all_of_them.items():
            begun = time.perf_counter()
            with context():
                found = translator.translate(source[:64] if not round_ else source, beam=5)
            if round_:
                seconds[name].append(time.perf_counter() - begun)
                texts[name] = [each.text for each in found]
    whole = statistics.median(seconds["float32"])
    for name, (translator, _) in all_of_them.items():
        median = statistics.median(seconds[name])
        print(
            f"{name:14} {median:6.1f} s  {whole / median:4.2f} times as fast  "
            f"{size_mib(translator.model):5.1f} MiB  BLEU {bleu(texts[name], reference):.2f}"
        )


if __name__ == "__main__":
    main()
