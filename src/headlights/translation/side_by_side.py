"""Pieces of work side by side, each by one thread."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def fitting_workers(device: torch.device) -> int:
    """How many pieces of work a device does well at once.

    Args:
        device: Where to compute.

    Returns:
        On a processor as many as torch has threads, elsewhere 1.
    """
    return torch.get_num_threads() if device.type == "cpu" else 1


def side_by_side(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """Do some work for each item; several at once where there are several.

    Threads that share a product wait for each other at the end of each; with a product each they wait once.
    That pays most where other programs run, for which all wait.

    Args:
        work: Called once for each item, in a thread of its own, in which torch computes with one thread.
        items: The largest first, so that no thread is left alone with a large one.
        workers: How many at once; 1 is the calling thread, in which torch has all its threads.

    Yields:
        Each item with what became of it, in order.
    """
    if workers == 1 or len(items) < 2:
        yield from ((item, work(item)) for item in items)
        return
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers, "headlights", initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from zip(items, pool.map(work, items), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # what a worker sets is for threads to come as well
