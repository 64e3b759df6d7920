"""What it costs to see attention: time and memory of a layer that keeps its weights, ours and torch's.

    python benchmarks/observed_attention.py --length 4096 --rounds 3 --threads 2

`nn.MultiheadAttention` returns the mean of the weights over heads, N x N; ours returns the same, or keeps the
eight largest weights of every query and head. Each runs in a fresh process; memory is the peak above what it
holds once inputs exist and a short warm-up is done. The processes take turns; printed are medians.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from headlights import MultiHeadAttention, observations

WIDTH, HEADS = 512, 8


def calls() -> dict[str, Callable[[torch.Tensor], Any]]:
    """The contestants by name, each a call on self-attention inputs (1, N, E)."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    ours = MultiHeadAttention(WIDTH, HEADS, batch_first=True).eval()
    ours.load_state_dict(theirs.state_dict())
    top = observations.TopWeights(8)
    return {
        "torch, mean weights": lambda x: theirs(x, x, x),
        "headlights, mean weights": lambda x: ours(x, x, x),
        "headlights, top 8 of each head": lambda x: ours(x, x, x, need_weights=False, observe=top),
        "torch, no weights": lambda x: theirs(x, x, x, need_weights=False),
        "headlights, no weights": lambda x: ours(x, x, x, need_weights=False),
    }


def measure(name: str, length: int, threads: int) -> None:
    """Run one contestant once and print its seconds and MiB as JSON."""
    torch.set_num_threads(threads)
    call, x = calls()[name], torch.randn(1, length, WIDTH)
    with torch.no_grad():
        call(x[:, :64])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        call(x)
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "mib": (peak - before) / 1024}))


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--length", type=int, default=4096, help="N, queries and keys")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        measure(options.only, options.length, options.threads)
        return
    results: dict[str, list[dict[str, float]]] = {name: [] for name in calls()}
    for _ in range(options.rounds):
        for name, found in results.items():
            arguments = ["--length", str(options.length), "--threads", str(options.threads), "--only", name]
            answer = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True)
            found.append(json.loads(answer.stdout))
    print(f"(B, N, E, H) = (1, {options.length}, {WIDTH}, {HEADS}), float32, no gradients")
    for name, found in results.items():
        seconds = statistics.median(each["seconds"] for each in found)
        mib = statistics.median(each["mib"] for each in found)
        print(f"{name:32}{1000 * seconds:8.0f} ms{mib:8.0f} MiB")


if __name__ == "__main__":
    main()
