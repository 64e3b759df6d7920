"""What the commands have the C library and oneDNN keep."""

import subprocess
import sys

import pytest

PRODUCTS = """
import torch
from headlights.cli.allocator import keep_prepared_products
torch.set_num_threads(1)
if {keep}:
    keep_prepared_products()
matrix = torch.ones(8, 8, dtype=torch.bfloat16)
for number in (1, 2):
    print("time", number, flush=True)
    for rows in range(2, 1300):
        torch.ones(rows, 8, dtype=torch.bfloat16) @ matrix
"""


def prepared_twice(*, keep: bool, **environment: str) -> tuple[int, int]:
    """How many of 1,298 shapes oneDNN prepares, the first time and the second."""
    run = subprocess.run(
        [sys.executable, "-c", PRODUCTS.format(keep=keep)],
        env={"ONEDNN_VERBOSE": "profile_create", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = run.stdout.split("time 2")
    return first.count("create:cache_miss"), second.count("create:cache_miss")


def test_what_onednn_prepares_for_a_shape_is_kept() -> None:
    first, second = prepared_twice(keep=False)
    if not first:
        pytest.skip("this processor's bfloat16 products are not oneDNN's")
    assert second > 0  # else there is nothing to do
    assert prepared_twice(keep=True) == (first, 0)
    assert prepared_twice(keep=True, ONEDNN_PRIMITIVE_CACHE_CAPACITY="1024")[1] > 0  # the user's own choice
