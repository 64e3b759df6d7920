"""Source A's "Core Idea": a word's vector, mixed with its neighbours', moves to its sense there."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headlights.senses import Reading, SelfAttention, builtin, cosine, disambiguate

TABLE = ("The table has a lot of data", "There is a plate on the table")
MAT = ("The cat sits on the mat", "The athlete exercises on the mat")
TABLE_SENSES = {"data": ["row", "digits"], "furniture": ["chair", "furniture"]}
MAT_SENSES = {"rug": ["rug", "carpet"], "sport": ["sports", "gym"]}
SMALL_WORDS = ("the", "has", "a", "of", "there", "is", "on")

# Seven words in two dimensions. Dot products with "table" = (1, 2): 0, 5, 1, 2, 4, 0, 3.
HAND = {
    "the": (-4.0, 2.0),
    "table": (1.0, 2.0),
    "has": (1.0, 0.0),
    "a": (0.0, 1.0),
    "lot": (2.0, 1.0),
    "of": (-2.0, 1.0),
    "data": (3.0, 0.0),
}
PRODUCTS = (0.0, 5.0, 1.0, 2.0, 4.0, 0.0, 3.0)


def by_hand(words: Sequence[str]) -> Tensor:
    return torch.tensor([HAND[word.lower()] for word in words], dtype=torch.float64)


@pytest.fixture(scope="module")
def table() -> list[Reading]:
    return disambiguate("table", TABLE, senses=TABLE_SENSES)


@pytest.fixture(scope="module")
def mat() -> list[Reading]:
    return disambiguate("mat", MAT, senses=MAT_SENSES)


@pytest.mark.parametrize(
    ("u", "v", "expected"),
    [
        ([3.0, 4.0], [4.0, 3.0], 24 / 25),
        ([2.0, 0.0], [0.0, 7.0], 0.0),
        ([1.0, -2.0, 2.0], [-2.0, 4.0, -4.0], -1.0),
        ([0.0, 0.0], [1.0, 2.0], 0.0),  # no direction
        ([3e-30, 4e-30], [1e30, 0.0], 0.6),  # the squares leave float32
    ],
)
def test_s1_cosine_of_hand_values(u: list[float], v: list[float], expected: float) -> None:
    assert float(cosine(torch.tensor(u), torch.tensor(v))) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 7), st.integers(0, 2**31))
def test_s1_cosine_is_the_formula_and_the_product_of_unit_vectors(E: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    u, v = torch.randn(2, 5, E, generator=generator, dtype=torch.float64)
    found = cosine(u, v)
    for row in range(5):
        pairs = list(zip(u[row].tolist(), v[row].tolist(), strict=True))
        lengths = math.sqrt(sum(a * a for a, _ in pairs)) * math.sqrt(sum(b * b for _, b in pairs))
        assert float(found[row]) == pytest.approx(sum(a * b for a, b in pairs) / lengths, abs=1e-12)
    units = [vector / vector.norm(dim=-1, keepdim=True) for vector in (u, v)]
    assert torch.allclose(cosine(*units), (units[0] * units[1]).sum(-1), atol=1e-12)


def test_s1_cosine_refuses_two_widths() -> None:
    with pytest.raises(ValueError, match=r"one width, \(..., E\) and \(..., E\), got \(2,\) and \(3,\)"):
        cosine(torch.ones(2), torch.ones(3))


def test_s2_before_attention_the_vector_is_the_same_in_both_sentences(table: list[Reading]) -> None:
    assert torch.equal(table[0].static, table[1].static)
    assert torch.equal(table[0].static, builtin()(["table"])[0])
    for sentence, reading in zip(TABLE, table, strict=True):
        assert torch.equal(builtin()(sentence.split())[reading.position], reading.static)


def test_s3_s4_weights_are_the_softmax_of_seven_hand_products() -> None:
    (reading,) = disambiguate("table", TABLE[:1], by_hand)
    total = sum(math.exp(product) for product in PRODUCTS)
    expected = torch.tensor([math.exp(product) / total for product in PRODUCTS], dtype=torch.float64)
    assert torch.allclose(reading.weights, expected, atol=1e-12)
    assert float(reading.weights.sum()) == pytest.approx(1, abs=1e-6)
    assert ((reading.weights >= 0) & (reading.weights <= 1)).all()


def test_s3_scale_multiplies_the_products() -> None:
    # Two words with products 5 (itself) and 3: weights 1 and e^(-2 * scale) over their sum.
    (reading,) = disambiguate("table", ["table data"], SelfAttention(by_hand, scale=0.5))
    assert reading.weights.tolist() == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))])


def test_s5_the_new_vector_is_the_weighted_sum(table: list[Reading]) -> None:
    for sentence, reading in zip(TABLE, table, strict=True):
        expected = torch.zeros(len(reading.static), dtype=torch.float64)
        for word, weight in zip(sentence.split(), reading.weights.tolist(), strict=True):
            expected += weight * builtin()([word])[0].double()
        assert torch.allclose(reading.contextual.double(), expected, atol=1e-6)


def test_s6_weights_rank_as_the_products(table: list[Reading], mat: list[Reading]) -> None:
    for reading in (*table, *mat):
        products = builtin()(reading.words) @ reading.static
        assert (reading.weights[products.argsort()].diff() >= 0).all()


def test_s7_the_table_of_data_looks_at_data(table: list[Reading]) -> None:
    reading = table[0]
    assert reading.decided_by[0][0] == "data"
    assert 0.6 < reading.weights[reading.position] < 0.95
    assert 0.08 < reading.decided_by[0][1] < 0.3


def test_s8_the_table_with_a_plate_looks_at_plate(table: list[Reading]) -> None:
    reading = table[1]
    assert reading.decided_by[0][0] == "plate"
    assert 0.6 < reading.weights[reading.position] < 0.95
    assert 0.08 < reading.decided_by[0][1] < 0.3


def test_s9_small_words_get_almost_nothing(table: list[Reading]) -> None:
    for reading in table:
        for word, weight in zip(reading.words, reading.weights.tolist(), strict=True):
            assert word.lower() not in SMALL_WORDS or weight < 0.05


@pytest.mark.parametrize("word", ["table", "mat"])
def test_s10_s11_one_vector_becomes_two_and_each_goes_to_its_cluster(
    word: str, table: list[Reading], mat: list[Reading]
) -> None:
    readings, senses = (table, ("data", "furniture")) if word == "table" else (mat, ("rug", "sport"))
    for reading, right, wrong in zip(readings, senses, reversed(senses), strict=True):
        assert reading.after[right] > reading.before[right] + 0.01
        assert reading.after[wrong] < reading.before[wrong] - 0.01
        assert (reading.sense, reading.nearest) == (right, right)
    assert float(cosine(readings[0].contextual, readings[1].contextual)) < 0.98


def test_s11_the_mat_needs_the_cat(mat: list[Reading]) -> None:
    assert [reading.decided_by[0][0] for reading in mat] == ["cat", "athlete"]


@pytest.mark.parametrize("seed", [1, 2])
def test_s7_s8_s11_hold_for_other_texts(seed: int) -> None:
    vectors = builtin(seed)
    assert not torch.equal(vectors(["table"]), builtin()(["table"]))
    readings = [
        *disambiguate("table", TABLE, vectors, senses=TABLE_SENSES),
        *disambiguate("mat", MAT, vectors, senses=MAT_SENSES),
    ]
    assert [reading.sense for reading in readings] == ["data", "furniture", "rug", "sport"]
    assert [reading.decided_by[0][0] for reading in readings[:3]] == ["data", "plate", "cat"]
