"""Memory and time of `headlights prepare` against the size of the corpus.

Writes a made-up corpus (words drawn by Zipf's law, 3 to 30 a side, a twentieth of the pairs seen before),
prepares it in a process of its own, and prints the peak memory of that process and its workers. Linux counts
for a worker what the process that started it held at that moment, so a worker's figure is an upper bound.

Run: python benchmarks/prepare_corpus.py --pairs 5000000
"""

import argparse
import gzip
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO, cast

import numpy as np

CHUNK = 50_000


def _packed(path: Path) -> TextIO:
    return cast(TextIO, gzip.open(path, "wt", compresslevel=1))


def write_corpus(folder: Path, pairs: int) -> list[Path]:
    random = np.random.default_rng(1)
    syllables = [a + b for a in "bcdfglmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er")]
    words = np.array(["".join(random.choice(syllables, random.integers(1, 5))) for _ in range(50_000)])
    share = 1 / np.arange(1, len(words) + 1)
    share /= share.sum()
    paths = [folder / "source.txt.gz", folder / "target.txt.gz"]
    with _packed(paths[0]) as source, _packed(paths[1]) as target:
        for start in range(0, pairs, CHUNK):
            count = min(CHUNK, pairs - start)
            lengths = random.integers(3, 31, count)
            text = iter(words[random.choice(len(words), int(lengths.sum()), p=share)].tolist())
            lines = [" ".join(next(text) for _ in range(length)) for length in lengths.tolist()]
            again = max(1, count // 20)
            lines[-again:] = lines[:again]
            source.writelines(f"{line}\n" for line in lines)
            target.writelines(f"{line[::-1]}\n" for line in lines)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[50_000, 200_000])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    print("pairs       seconds   pairs/s   peak of the process   peak of the largest worker")
    for pairs in options.pairs:
        with tempfile.TemporaryDirectory() as name:
            source, target = write_corpus(Path(name), pairs)
            command = [
                *(sys.executable, "-c", _RUN, "prepare", "--source", str(source), "--target", str(target)),
                *("--out", str(Path(name) / "prepared"), "--workers", str(options.workers)),
            ]
            started = time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds = time.monotonic() - started
            own, worker = (int(kilobytes) / 1024 for kilobytes in done.stdout.splitlines()[-1].split())
            peaks = f"{own:>17,.0f} MiB{worker:>24,.0f} MiB"
            print(f"{pairs:<10,}{seconds:>9.0f}{pairs / seconds:>10,.0f}{peaks}")


_RUN = f"""
import resource, sys
from headlights.cli.app import run
code = run(sys.argv[1:])
peaks = [resource.getrusage(who).ru_maxrss for who in ({resource.RUSAGE_SELF}, {resource.RUSAGE_CHILDREN})]
print(*peaks)
sys.exit(code)
"""

if __name__ == "__main__":
    main()
