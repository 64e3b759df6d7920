"""Work side by side: what comes out is what one thread after the other would make."""

import threading

import pytest
import torch

from headlights.translation.side_by_side import fitting_workers, side_by_side


def test_results_come_in_order_whoever_is_done_first() -> None:
    second_is_done = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert second_is_done.wait(10)
        second_is_done.set()
        return item * item

    assert list(side_by_side(work, [0, 1, 2, 3], 2)) == [(0, 0), (1, 1), (2, 4), (3, 9)]


@pytest.mark.parametrize("items", [[], [5]])
def test_a_single_piece_keeps_the_calling_thread(items: list[int]) -> None:
    assert [name for _, name in side_by_side(lambda _: threading.current_thread().name, items, 4)] == [
        threading.current_thread().name
    ] * len(items)


def test_each_worker_computes_with_one_thread_and_the_caller_with_as_many_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        counts = [count for _, count in side_by_side(lambda _: torch.get_num_threads(), [1, 2, 3, 4], 2)]
        assert counts == [1] * 4
        assert torch.get_num_threads() == 3
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [3]
    finally:
        torch.set_num_threads(before)


def test_a_failure_reaches_the_caller_and_ends_the_rest() -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        raise RuntimeError(f"piece {item}")

    with pytest.raises(RuntimeError, match="piece 0"):
        list(side_by_side(work, range(1000), 2))
    assert len(begun) < 1000


def test_one_worker_a_thread_on_a_processor_and_one_elsewhere() -> None:
    assert fitting_workers(torch.device("cpu")) == torch.get_num_threads()
    assert fitting_workers(torch.device("cuda")) == 1
