"""Subword dropout: what it cuts, how often, and that training cuts anew in each epoch, validation never."""

import pytest
import torch

from headlights.translation.batches import TokenBatches
from headlights.translation.data import load_data
from headlights.translation.recipe import RecipeError, check_recipe
from headlights.translation.sentences import Sentences
from headlights.translation.subwords import SubwordDropout
from headlights.translation.tokenizer import Tokenizer

# 0 to 3 are letters, 4 = 0 1, 5 = 2 3, 6 = 4 5: the tree ((0 1) (2 3)).
PARTS = [(-1, -1)] * 4 + [(0, 1), (2, 3), (4, 5)]


def cut(sentences: list[list[int]], p: float, seed: int = 1) -> list[list[int]]:
    found = SubwordDropout(PARTS, p)(Sentences.of(sentences), torch.Generator().manual_seed(seed))
    return [found.joined(torch.tensor([row])).tolist() for row in range(len(found))]


def test_without_probability_nothing_is_cut_and_letters_never_are() -> None:
    sentences = [[6, 0], [], [5, 6, 4]]
    assert cut(sentences, 0.0) == sentences
    assert cut([[0, 1, 2, 3]], 0.9) == [[0, 1, 2, 3]]


def test_cut_tokens_are_cut_again_and_sentences_stay_apart() -> None:
    assert cut([[6, 5], [], [4]], 0.999_999) == [[0, 1, 2, 3, 2, 3], [], [0, 1]]


def test_each_outcome_is_as_often_as_its_tree_says() -> None:
    p, count = 0.3, 40_000
    found = [tuple(each) for each in cut([[6]] * count, p)]
    q = 1 - p
    # The root is cut with p; then either half, each with p, of the other's.
    expected = {
        (6,): q,
        (4, 5): p * q * q,
        (0, 1, 5): p * p * q,
        (4, 2, 3): p * q * p,
        (0, 1, 2, 3): p * p * p,
    }
    assert sum(expected.values()) == pytest.approx(1)
    assert set(found) == set(expected)
    for outcome, share in expected.items():
        deviation = (share * (1 - share) / count) ** 0.5  # binomial
        assert abs(found.count(outcome) / count - share) < 5 * deviation


def test_a_learned_tokenizer_reads_the_same_text_from_what_was_cut() -> None:
    texts = ["the cats sat on the mats, the cat sat", "die Katzen saßen auf den Matten, die Katze saß"] * 5
    tokenizer = Tokenizer.train(texts, vocab_size=300)
    dropout = SubwordDropout(tokenizer.parts(), 0.5)
    sentences = Sentences.of(each.ids for each in tokenizer.encode_batch(texts))
    found = dropout(sentences, torch.Generator().manual_seed(3))
    assert int(found.lengths.sum()) > int(sentences.lengths.sum())
    for row, text in enumerate(texts):
        assert tokenizer.decode(found.joined(torch.tensor([row])).tolist()) == text
    words = Tokenizer.train(texts, kind="word", vocab_size=300)
    assert words.parts() == [(-1, -1)] * words.vocab_size


def test_epochs_cut_anew_whatever_came_before_and_evaluation_never() -> None:
    changes = (SubwordDropout(PARTS, 0.5), SubwordDropout(PARTS, 0.5))
    sides = [[6, 5, 6]] * 7, [[4, 6]] * 7

    def make() -> TokenBatches:
        return TokenBatches(*sides, max_tokens=12, pad_id=7, bos_id=8, eos_id=9, seed=5, changes=changes)

    def seen(epoch: int, start: int = 0) -> list[tuple[list[list[int]], list[list[int]]]]:
        found = make().batches(epoch, start=start)
        return [(batch.source.tolist(), batch.target_out.tolist()) for batch in found]

    assert seen(1) == seen(1)
    assert seen(1)[2:] == seen(1, start=2)
    assert seen(1) != seen(2)
    for batch in make().batches(1):
        assert (batch.source != 7).sum(1).tolist() == batch.source_lengths.tolist()
        assert (batch.target_out != 7).sum(1).tolist() == batch.target_lengths.tolist()
    for batch in make().ordered():
        assert batch.source.tolist() == [[6, 5, 6, 9]] * len(batch.source)


def test_a_recipe_cuts_what_is_trained_on_and_not_what_is_validated() -> None:
    def lengths(p: float, epoch: int) -> int:
        content = {
            "data": {"built_in": 1000},
            "tokenizer": {"vocab_size": 400},
            "training": {"subword_dropout": p, "max_updates": 1, "batch_tokens": 500},
        }
        data = load_data(check_recipe(content, "r"))
        whole = [batch.source_lengths.sum() for batch in data.batches(data.valid[:9], 500).ordered()]
        valid.append(int(torch.stack(whole).sum()))
        return sum(int(batch.source_lengths.sum()) for batch in data.train.batches(epoch))

    valid: list[int] = []
    plain, cut, again = lengths(0.0, 0), lengths(0.2, 0), lengths(0.2, 1)
    assert plain < cut != again > plain
    assert len(set(valid)) == 1


def test_refusals() -> None:
    for p in (-0.1, 1.0):
        with pytest.raises(ValueError, match=r"p must be in \[0, 1\), got"):
            SubwordDropout(PARTS, p)
    with pytest.raises(RecipeError, match=r"training\.subword_dropout cuts .* tokenizer\.kind = 'bpe'"):
        check_recipe(
            {"tokenizer": {"kind": "word"}, "training": {"subword_dropout": 0.1, "max_updates": 1}}, "r"
        )
