"""Time and memory of attention, ours and its peers', side by side: the command `headlights bench attention`.

    python benchmarks/attention.py --docs docs    # everything, about ten minutes on two cores
    python benchmarks/attention.py --rows window,plain --threads 1
    python benchmarks/attention.py --help

The measurements themselves are in `headlights.bench`, so that whoever installed the package can repeat them.
"""

import sys

from headlights.cli.app import run

if __name__ == "__main__":
    sys.exit(run(["bench", "attention", *sys.argv[1:]]))
