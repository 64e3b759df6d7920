"""The built-in corpus: repeatable, distinct, aligned, and split so that the test asks something new."""

import re
from collections import Counter, defaultdict
from itertools import islice, pairwise

import pytest

from headlights.translation.corpus import grammar
from headlights.translation.corpus.grammar import sampling
from headlights.translation.corpus.grammar.lexicon import lexicon
from headlights.translation.corpus.pair import Pair


def words(text: str) -> list[str]:
    """Split by the library's rule, written anew: an apostrophe ends a word, a mark is a word."""
    return re.findall(r"[^\W\d_]+'?|[^\w\s]", text)


def lower(text: str) -> list[str]:
    return [word.lower() for word in words(text)]


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return grammar.generate(6000, seed=7)


@pytest.fixture(scope="module")
def split() -> grammar.Splits:
    return grammar.splits()


def test_the_seed_decides() -> None:
    assert grammar.generate(50, seed=3) == grammar.generate(50, seed=3)
    assert grammar.generate(50, seed=3) == grammar.generate(70, seed=3)[:50]
    assert grammar.generate(50, seed=3) != grammar.generate(50, seed=4)
    assert grammar.splits(5, 1500, 20, 20) == grammar.splits(5, 1500, 20, 20)
    assert grammar.generate(0, seed=1) == []


def test_pairs_are_distinct(pairs: list[Pair]) -> None:
    assert len({pair.source.lower().rstrip(".?") for pair in pairs}) == len(pairs)


def test_one_source_has_one_translation(pairs: list[Pair], split: grammar.Splits) -> None:
    translations = defaultdict(set)
    for pair in (*pairs, *split.train, *split.test):
        translations[pair.source.rstrip(".?")].add(pair.target.rstrip(".?"))
    assert all(len(each) == 1 for each in translations.values())


def test_few_word_forms_each_often_enough_to_be_learned(split: grammar.Splits) -> None:
    english = Counter(word for pair in split.train for word in lower(pair.source))
    italian = Counter(word for pair in split.train for word in lower(pair.target))
    assert 260 <= len(english) <= 330
    assert 350 <= len(italian) <= 430
    for counts in (english, italian):
        word, least = min(counts.items(), key=lambda item: item[1])
        assert least >= 60, word


def test_lengths_span_3_to_25_words(pairs: list[Pair]) -> None:
    counts = Counter(len(words(pair.source)) for pair in pairs)
    assert min(counts) == 3
    assert max(counts) == 25
    for shortest, longest in ((3, 5), (6, 10), (11, 15), (16, 20), (21, 25)):
        assert sum(counts[n] for n in range(shortest, longest + 1)) > 0.08 * len(pairs)


def test_surface(pairs: list[Pair]) -> None:
    marked = 0
    for pair in pairs:
        for text in (pair.source, pair.target):
            assert text[0].isupper()
            assert re.fullmatch(r"[^\W\d_]+(?:(?: |, |')[^\W\d_]+)*[.?]?", text), text
        assert (pair.source[-1] in ".?") == (pair.target[-1] in ".?")
        marked += pair.source[-1] in ".?"
    assert 0.65 < marked / len(pairs) < 0.75


def test_links_are_in_range_and_reach_every_target_word(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert pair.links is not None
        both = {*pair.links, *pair.possible}
        assert len(both) == len(pair.links) + len(pair.possible)
        sources, targets = words(pair.source), words(pair.target)
        assert {i for i, _ in both} <= set(range(len(sources)))
        assert {j for _, j in both} == set(range(len(targets)))


def test_picking_one_source_word_each_can_be_right_everywhere(pairs: list[Pair]) -> None:
    # AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), with the best choice of one source word per target word.
    right = total = 0
    for pair in pairs:
        sure = set(pair.links or ())
        allowed = sure | set(pair.possible)
        best = {j: (i, j) for i, j in sorted(allowed)} | {j: (i, j) for i, j in sorted(sure)}
        picked = set(best.values())
        right += len(picked & sure) + len(picked & allowed)
        total += len(picked) + len(sure)
    assert 1 - right / total < 0.025


def test_splits_have_their_sizes_and_share_nothing(split: grammar.Splits) -> None:
    assert (len(split.train), len(split.valid), len(split.test)) == (12000, 500, 500)
    sources = [
        {pair.source.lower().rstrip(".?") for pair in part} for part in (split.train, split.valid, split.test)
    ]
    assert sum(map(len, sources)) == len(set().union(*sources)) == 13000
    examples = {example.pair.source.lower() for example in grammar.EXAMPLES}
    assert not examples & set().union(*sources)


def test_training_knows_every_word_of_the_other_splits(split: grammar.Splits) -> None:
    for side in ("source", "target"):
        known = {word for pair in split.train for word in lower(getattr(pair, side))}
        asked = {word for pair in (*split.valid, *split.test) for word in lower(getattr(pair, side))}
        assert asked <= known


def test_each_test_pair_combines_what_training_does_not() -> None:
    stream = list(islice(sampling.sentences(0), 3000))
    trained = {each for item in stream if not sampling.is_held_out(item) for each in item.combinations}
    held = [item for item in stream if sampling.is_held_out(item)]
    assert 300 < len(held) < 1500
    assert all(item.combinations - trained for item in held)


def test_held_out_words_never_meet_in_training_text(split: grammar.Splits) -> None:
    # From the text alone: adjectives right before their noun, among words that training knows well.
    def bigrams(part: tuple[Pair, ...]) -> set[tuple[str, str]]:
        found = set()
        for pair in part:
            line = lower(pair.source)
            found |= set(pairwise(line))
        return found

    new = bigrams(split.test) - bigrams(split.train)
    assert len(new) > 100
    # Deciding nouns that are held out; in short sentences they could meet their word for no other reason.
    held = [{"box", "key"}, {"box", "keys"}, {"secretary", "seal"}]
    for meeting in held:
        short = [pair.source for pair in split.train if len(words(pair.source)) <= 8]
        assert not [source for source in short if meeting <= set(lower(source))]
    assert sum(meeting <= set(lower(pair.source)) for pair in split.test for meeting in held) >= 5


def count_senses(part: tuple[Pair, ...]) -> dict[str, Counter[str]]:
    """Count for each ambiguous form the words that translate it."""
    forms = grammar.senses()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in part:
        source, target = lower(pair.source), lower(pair.target)
        for i, j in pair.links or ():
            if source[i] in forms:
                counts[source[i]][target[j]] += 1
    return counts


def test_ambiguous_words_have_both_senses_about_equally_often(split: grammar.Splits) -> None:
    forms = grammar.senses()
    assert forms["table"] == ("tavolo", "tabella")
    assert forms["tables"] == ("tavoli", "tabelle")
    assert forms["mat"] == ("tappeto", "materassino")
    assert len(_singular()) >= 16
    trained = count_senses(split.train)
    for word, translations in forms.items():
        assert min(trained[word][each] for each in translations) >= 60, word
    for singular, senses in lexicon().senses.items():
        totals = [
            sum(trained[form][sense.italian[number]] for number, form in enumerate(sense.english))
            for sense in senses
        ]
        assert min(totals) >= 150, singular
        assert 0.3 < totals[0] / sum(totals) < 0.7, singular


def test_the_test_split_asks_about_every_sense(split: grammar.Splits) -> None:
    found: Counter[str] = Counter()
    for pair in split.test:
        target = lower(pair.target)
        found.update(target[j] for _, j in pair.links or ())
    for one, other in zip(*_lemma_forms(), strict=True):
        assert sum(found[form] for form in one) >= 2, one
        assert sum(found[form] for form in other) >= 2, other


def _singular() -> list[str]:
    return list(lexicon().senses)


def _lemma_forms() -> tuple[list[set[str]], list[set[str]]]:
    senses = lexicon().senses.values()
    return [set(first.italian) - {""} for first, _ in senses], [
        set(second.italian) - {""} for _, second in senses
    ]


def test_no_neighbour_decides_alone(split: grammar.Splits) -> None:
    forms = grammar.senses()
    seen: dict[str, dict[tuple[str, str], set[int]]] = defaultdict(lambda: defaultdict(set))
    for pair in split.train:
        source, target = ["", *lower(pair.source), ""], lower(pair.target)
        for i, j in pair.links or ():
            word = source[i + 1]
            if word in forms:
                neighbours = (source[i], source[i + 2])
                seen[word][neighbours].add(forms[word].index(target[j]))
    # Each singular form stands between the same two words in both senses.
    for word in _singular():
        assert any(len(senses) == 2 for senses in seen[word].values()), word


@pytest.mark.parametrize("example", grammar.EXAMPLES, ids=lambda example: example.sense)
def test_s11_examples_show_the_word_and_what_decides_it(example: grammar.Example) -> None:
    source, target = words(example.pair.source), words(example.pair.target)
    assert source[example.ambiguous] in ("table", "mat")
    assert source[example.deciding] in ("data", "plate", "cat", "athlete")
    links = dict(example.pair.links or ())
    assert target[links[example.ambiguous]] == example.sense
    assert {j for _, j in (*links.items(), *(example.pair.links or ()))} == set(range(len(target)))


@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_sizes_must_not_be_negative(name: str) -> None:
    sizes = {"train": 0, "valid": 0, "test": 0, name: -1}
    with pytest.raises(ValueError, match=rf"{name}: expected 0 or more pairs, got -1"):
        grammar.splits(0, **sizes)


def test_count_must_not_be_negative() -> None:
    with pytest.raises(ValueError, match=r"count: expected 0 or more, got -1"):
        grammar.generate(-1, seed=0)


def test_too_small_a_training_split_is_refused() -> None:
    with pytest.raises(ValueError, match=r"train: 3 pairs teach too few words .* expected 1000 or more"):
        grammar.splits(0, train=3, valid=0, test=5)
