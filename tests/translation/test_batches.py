import math
import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlights.translation.batches import Batch, TokenBatches, shift, source_batches
from headlights.translation.sentences import Sentences

unhurried = settings(deadline=None)  # the machine may be busy

PAD, BOS, EOS = 0, 1, 2
sides = st.lists(st.tuples(st.integers(0, 23), st.integers(0, 23)), min_size=1, max_size=60)


def ids_of(length: int, first: int) -> list[int]:
    return [3 + (first + k) % 11 for k in range(length)]


def build(lengths: list[tuple[int, int]], max_tokens: int = 31, **options: Any) -> TokenBatches:
    source = [ids_of(s, i) for i, (s, _) in enumerate(lengths)]
    target = [ids_of(t, i + 5) for i, (_, t) in enumerate(lengths)]
    return TokenBatches(source, target, max_tokens=max_tokens, pad_id=PAD, bos_id=BOS, eos_id=EOS, **options)


def test_s16_shift_gives_the_pair_of_the_source() -> None:
    read, answer = shift(["cat", "sits", "on", "the", "mat"], bos="<BOS>", eos="<EOS>")
    assert " ".join(read) == "<BOS> cat sits on the mat"
    assert " ".join(answer) == "cat sits on the mat <EOS>"


def test_s13_s16_a_batch_written_out() -> None:
    batches = TokenBatches(
        [[5, 6, 7], [8]], [[9], [10, 11]], max_tokens=100, pad_id=PAD, bos_id=BOS, eos_id=EOS
    )
    batch = batches.batch(torch.tensor([1, 0]))
    assert batch.source.tolist() == [[8, EOS, PAD, PAD], [5, 6, 7, EOS]]
    assert batch.source_lengths.tolist() == [2, 4]
    assert batch.target_in.tolist() == [[BOS, 10, 11], [BOS, 9, PAD]]
    assert batch.target_out.tolist() == [[10, 11, EOS], [9, EOS, PAD]]
    assert batch.target_lengths.tolist() == [3, 2]
    assert batch.indices.tolist() == [1, 0]
    assert {tensor.dtype for tensor in fields(batch)} == {torch.int64}


def fields(batch: Batch) -> list[torch.Tensor]:
    return [
        batch.source,
        batch.source_lengths,
        batch.target_in,
        batch.target_out,
        batch.target_lengths,
        batch.indices,
    ]


@unhurried
@given(sides, st.integers(1, 97), st.integers(0, 5), st.integers(0, 3))
def test_every_pair_once_an_epoch_within_the_budget(
    lengths: list[tuple[int, int]], max_tokens: int, seed: int, epoch: int
) -> None:
    batches = build(lengths, max_tokens, seed=seed)
    seen = []
    for batch in batches.batches(epoch):
        seen += batch.indices.tolist()
        size = len(batch.indices)
        assert size == 1 or size * max(batch.source.shape[1], batch.target_in.shape[1]) <= max_tokens
        for row, index in enumerate(batch.indices.tolist()):
            source, target = ids_of(lengths[index][0], index), ids_of(lengths[index][1], index + 5)
            read, answer = shift(target, bos=BOS, eos=EOS)
            n, t = int(batch.source_lengths[row]), int(batch.target_lengths[row])
            assert batch.source[row, :n].tolist() == [*source, EOS]
            assert batch.target_in[row, :t].tolist() == read
            assert batch.target_out[row, :t].tolist() == answer
            assert (batch.source[row, n:] == PAD).all()
            assert (batch.target_in[row, t:] == PAD).all()
            assert (batch.target_out[row, t:] == PAD).all()
    assert sorted(seen) == list(range(len(lengths)))


@unhurried
@given(sides, st.integers(0, 4), st.data())
def test_a_resumed_epoch_continues_as_if_never_stopped(
    lengths: list[tuple[int, int]], epoch: int, data: st.DataObject
) -> None:
    whole = list(build(lengths).batches(epoch))
    start = data.draw(st.integers(0, len(whole)))
    rest = list(build(lengths).batches(epoch, start=start))
    assert len(rest) == len(whole) - start
    for one, other in zip(whole[start:], rest, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(fields(one), fields(other), strict=True))


def test_epochs_and_seeds_differ_and_ignore_the_global_seed() -> None:
    lengths = [(k % 7, k % 5) for k in range(101)]
    plans = [
        [rows.tolist() for rows in build(lengths, seed=seed).plan(epoch)]
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert all(plans[i] != plans[j] for i in range(4) for j in range(i))
    torch.manual_seed(17)
    assert [rows.tolist() for rows in build(lengths).plan(0)] == plans[0]


def test_little_is_padding_and_batches_are_not_in_order_of_length() -> None:
    generator = random.Random(3)
    source = [max(1, int(generator.lognormvariate(2.5, 0.6))) for _ in range(5003)]
    lengths = [(n, max(1, int(n * generator.uniform(0.75, 1.35)))) for n in source]
    padding = cells = 0
    widths = []
    for batch in build(lengths, 2003).batches(0):
        for ids in (batch.source, batch.target_out):
            padding += int((ids == PAD).sum())
            cells += ids.numel()
        widths.append(batch.source.shape[1])
    assert padding / cells < 0.15
    rising = sum(a < b for a, b in pairwise(widths))
    assert 0.25 < rising / len(widths) < 0.75


def test_batches_are_as_full_as_the_budget_allows() -> None:
    # 60 pairs of 4 tokens, 5 with the mark: a budget of 34 holds 6 of them, and all are in one pool.
    assert [len(rows) for rows in build([(4, 3)] * 60, 34).plan(0)] == [6] * 10


def test_a_long_sentence_does_not_keep_later_batches_small() -> None:
    # 10 tokens with the mark fill the budget; then five sentences of 2 tokens fill it.
    batches = source_batches([[5] * 9, *[[5]] * 10], max_tokens=10, pad_id=PAD, eos_id=EOS)
    assert [len(batch.indices) for batch in batches] == [1, 5, 5]


def test_the_last_batches_of_several_workers_are_smaller() -> None:
    # 40 sentences of 2 tokens. Of two workers, each batch is a quarter of what is left: 20 tokens at most,
    # then 15 of 60, 11 of 46 (14 are gone), 9 of 36, 7 of 28, and no less than a quarter of 20.
    batches = source_batches([[5]] * 40, max_tokens=20, pad_id=PAD, eos_id=EOS, workers=2)
    assert [len(batch.indices) for batch in batches] == [10, 7, 5, 4, 3, 2, 2, 2, 2, 2, 1]
    alone = source_batches([[5]] * 40, max_tokens=20, pad_id=PAD, eos_id=EOS)
    assert [len(batch.indices) for batch in alone] == [10] * 4


def test_ordered_batches_begin_with_the_longest_and_restore_the_order() -> None:
    lengths = [(k * 5 % 13, k * 3 % 11) for k in range(47)]
    ordered = list(build(lengths).ordered())
    longest = [max(lengths[i]) for batch in ordered for i in batch.indices.tolist()]
    assert longest == sorted(longest, reverse=True)
    assert sorted(i for batch in ordered for i in batch.indices.tolist()) == list(range(47))


def test_pairs_above_max_length_are_dropped_and_counted() -> None:
    batches = build([(3, 2), (8, 2), (2, 8), (7, 7)], max_length=7)
    assert batches.dropped == 2
    assert len(batches) == 2
    assert sorted(torch.cat(batches.plan(0)).tolist()) == [0, 3]


@unhurried
@given(st.lists(st.integers(0, 19), max_size=37), st.integers(1, 59), st.integers(1, 3))
def test_source_batches_hold_every_sentence_once(lengths: list[int], max_tokens: int, workers: int) -> None:
    seen = []
    sentences = [ids_of(n, i) for i, n in enumerate(lengths)]
    batches = source_batches(sentences, max_tokens=max_tokens, pad_id=PAD, eos_id=EOS, workers=workers)
    for batch in batches:
        seen += batch.indices.tolist()
        assert len(batch.indices) == 1 or batch.source.numel() <= max_tokens
        for row, index in enumerate(batch.indices.tolist()):
            padding = batch.source.shape[1] - lengths[index] - 1
            assert batch.source[row].tolist() == [*sentences[index], EOS, *[PAD] * padding]
            assert batch.source_lengths[row] == lengths[index] + 1
    assert sorted(seen) == list(range(len(lengths)))


def test_sentences_from_tensors_equal_sentences_from_lists() -> None:
    flat, offsets = torch.tensor([5, 6, 7, 8], dtype=torch.int32), torch.tensor([0, 3, 3, 4])
    given, gathered = Sentences(flat, offsets), Sentences.of([[5, 6, 7], [], [8]])
    rows = torch.tensor([2, 1, 0])
    assert len(given) == 3
    for sentences in (given, gathered):
        assert sentences.padded(rows, pad_id=9).tolist() == [[8, 9, 9], [9, 9, 9], [5, 6, 7]]
        both = sentences.padded(rows, pad_id=9, bos_id=BOS, eos_id=EOS)
        assert both.tolist() == [[1, 8, 2, 9, 9], [1, 2, 9, 9, 9], [1, 5, 6, 7, 2]]


def test_batches_move_to_a_device() -> None:
    batch = next(build([(3, 2)]).batches(0)).to("meta")
    assert {tensor.device.type for tensor in fields(batch)} == {"meta"}
    alone = next(source_batches([[5]], max_tokens=7, pad_id=PAD, eos_id=EOS)).to("meta")
    assert {t.device.type for t in (alone.source, alone.source_lengths, alone.indices)} == {"meta"}


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"source has 2 sentences but target has 1; sentence n"):
        TokenBatches([[3], [4]], [[5]], max_tokens=7, pad_id=PAD, bos_id=BOS, eos_id=EOS)
    with pytest.raises(ValueError, match=r"max_tokens must be 1 or more, got 0"):
        build([(1, 1)], 0)
    with pytest.raises(ValueError, match=r"max_tokens must be 1 or more, got 0"):
        next(source_batches([[5]], max_tokens=0, pad_id=PAD, eos_id=EOS))
    with pytest.raises(ValueError, match=r"seed must be 0 or more, got -1"):
        build([(1, 1)], seed=-1)
    with pytest.raises(ValueError, match=r"no sentence pairs left to batch: 1 given, max_length=2"):
        build([(3, 1)], max_length=2)
    with pytest.raises(ValueError, match=r"epoch must be 0 or more, got -1"):
        build([(1, 1)]).plan(-1)
    with pytest.raises(ValueError, match=r"start must be between 0 and the 1 batches of the epoch, got 2"):
        next(build([(1, 1)]).batches(0, start=2))


def test_the_number_of_batches_is_close_to_the_least_possible() -> None:
    lengths = [(7, 7)] * 1009
    assert len(build(lengths, 80).plan(0)) <= math.ceil(1009 / 10) + 2
