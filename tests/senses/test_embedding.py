"""Vectors learned by counting, and the text that they are learned from."""

import math

import pytest
import torch

from headlights.senses import WordVectors, builtin, learn_embedding
from headlights.senses import text as builtin_text

# Ordered pairs of places: "a b" three times gives (a, b) and (b, a) 3 each, "c d" the same; 12 in all.
TWO_WORLDS = ["a b", "A b.", ["a", "b"], "c d", "c d", "c, d!"]


def products(vectors: WordVectors, words: str) -> torch.Tensor:
    found = vectors(words.split()).double()
    return found @ found.mT


def test_products_are_the_information_of_two_words_that_only_meet_each_other() -> None:
    # P(a, b) = 3/12 and P(a) = P(b) = 1/4, so PMI(a, b) = log 4; a and c never meet. The matrix of a and b is
    # [[0, log 4], [log 4, 0]] with eigenvalues log 4 and -log 4: U S U' is log 4 times the identity.
    found = products(learn_embedding(TWO_WORLDS, dim=4, shift=1), "a b c d")
    assert torch.allclose(found, math.log(4) * torch.eye(4, dtype=torch.float64), atol=1e-6)
    # shift 2 leaves log 4 - log 2
    found = products(learn_embedding(TWO_WORLDS, dim=4, shift=2), "a b c d")
    assert torch.allclose(found, math.log(2) * torch.eye(4, dtype=torch.float64), atol=1e-6)


def test_a_word_said_twice_meets_itself() -> None:
    # Places (1, 2) of "a a" in both orders: P(a, a) = 2/4, P(a) = 1/2; PMI(a, a) = log 2, likewise for b, c.
    found = products(learn_embedding(["a a", "b c"], dim=3, shift=1), "a b c")
    # b and c: P = 1/4 each way, P(b) = P(c) = 1/4, PMI log 4.
    expected = torch.tensor([math.log(2), math.log(4), math.log(4)], dtype=torch.float64).diag()
    assert torch.allclose(found, expected, atol=1e-6)


def test_factors_equal_those_of_a_singular_value_decomposition() -> None:
    sentences = ["the cat sat on the mat", "the dog sat on the log", "a cat saw a dog", "a mat on a log"]
    words = sorted({word for sentence in sentences for word in sentence.split()})
    counts = torch.zeros(len(words), len(words), dtype=torch.float64)
    for sentence in sentences:
        split = sentence.split()
        for i, a in enumerate(split):
            for j, b in enumerate(split):
                counts[words.index(a), words.index(b)] += i != j
    matrix = torch.zeros_like(counts)
    for i in range(len(words)):
        for j in range(len(words)):
            if counts[i, j] > 0:
                ratio = counts[i, j] * counts.sum() / (counts[i].sum() * counts[:, j].sum())
                matrix[i, j] = max(0.0, math.log(float(ratio)))
    U, S, _ = torch.linalg.svd(matrix)
    full = (U * S) @ U.mT  # products do not depend on the signs of the factors
    vectors = learn_embedding(sentences, dim=len(words), shift=1)
    assert vectors.words == tuple(words)
    assert torch.allclose(products(vectors, " ".join(words)), full, atol=1e-5)


def test_only_the_most_frequent_words_are_kept_and_others_are_zero() -> None:
    vectors = learn_embedding(["a b", "a b c"], max_words=2, dim=2)
    assert vectors.words == ("a", "b")
    assert "A" in vectors
    assert "c" not in vectors
    assert not vectors(["c"]).any()
    assert vectors([]).shape == (0, 2)


@pytest.mark.parametrize(
    ("sentences", "options", "expected"),
    [
        (["a b"], {"shift": 0.5}, "shift: expected a number of at least 1, got 0.5"),
        (["a b"], {"shift": math.nan}, "shift: expected a number of at least 1, got nan"),
        (["a b"], {"dim": 0}, "dim: expected at least 1, got 0"),
        (["a b"], {"max_words": -1}, "max_words: expected at least 1, got -1"),
        (["a", "b."], {}, "sentences: no two words share a sentence; expected sentences of several words"),
        ([], {}, "sentences: no two words share a sentence"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    sentences: list[str], options: dict[str, float], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        learn_embedding(sentences, **options)  # type: ignore[arg-type]


def test_word_vectors_need_a_word() -> None:
    with pytest.raises(ValueError, match="vectors: expected at least one word"):
        WordVectors({})


def test_the_text_makes_every_choice_and_depends_on_the_seed_alone() -> None:
    sentences = builtin_text(seed=3)
    assert sentences == builtin_text(seed=3) != builtin_text(seed=4)
    assert not any(set("{|}#") & set(sentence) for sentence in sentences)
    assert len(sentences) > 6000


def test_a_word_that_stands_beside_every_word_has_a_short_vector() -> None:
    length = builtin()(["the", "table", "data", "cat"]).norm(dim=-1)
    assert length[0] < length[1:].min() / 2
