import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headlights.translation.words import join_words, words

unhurried = settings(deadline=None)  # the machine may be busy


def texts(text: str) -> list[str]:
    return [word.text for word in words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("The cat sat.", ["The", "cat", "sat", "."], id="plain"),
        pytest.param("", [], id="empty"),
        pytest.param(" \t\u00a0\u2028", [], id="blank"),
        pytest.param("l'uomo e dell’acqua", ["l'", "uomo", "e", "dell’", "acqua"], id="elision"),
        pytest.param("C'è", ["C'", "è"], id="elision before an accent"),
        pytest.param("C'e\u0300", ["C'", "e\u0300"], id="elision before a decomposed accent"),
        pytest.param(
            "don't it's we're I’ve she'll he'd I'm",
            ["don't", "it's", "we're", "I’ve", "she'll", "he'd", "I'm"],
            id="endings",
        ),
        pytest.param("DON'T", ["DON'T"], id="ending in capitals"),
        pytest.param("l'stesso d'mare", ["l'", "stesso", "d'", "mare"], id="no ending where letters follow"),
        pytest.param("the 90's", ["the", "90's"], id="ending of a number"),
        pytest.param("5'10", ["5", "'", "10"], id="apostrophe after a digit"),
        pytest.param("po' di", ["po", "'", "di"], id="apostrophe at the end"),
        pytest.param("'quoted'", ["'", "quoted", "'"], id="single quotes"),
        pytest.param("state-of-the-art - x-", ["state-of-the-art", "-", "x", "-"], id="hyphens"),
        pytest.param("3.14 1,000,000 10:30.", ["3.14", "1,000,000", "10:30", "."], id="numbers"),
        pytest.param("a.b x:y", ["a", ".", "b", "x", ":", "y"], id="separators between letters"),
        pytest.param("<unk></s>", ["<", "unk", ">", "<", "/", "s", ">"], id="markup"),
        pytest.param("a_b", ["a", "_", "b"], id="underscore"),
        pytest.param("...", [".", ".", "."], id="dots"),
        pytest.param("👩‍🔬👩‍🔬", ["👩‍🔬", "👩‍🔬"], id="joined emoji"),
        pytest.param("👍🏽!", ["👍🏽", "!"], id="skin tone"),
        pytest.param("🇮🇹🇩🇪", ["🇮🇹", "🇩🇪"], id="flags"),
        pytest.param("1️⃣ ❤️", ["1️⃣", "❤️"], id="variation selectors"),
        pytest.param("हिन्दी में", ["हिन्दी", "में"], id="marks inside letters"),
        pytest.param("\u0301x", ["\u0301", "x"], id="lone mark"),
        pytest.param("سلام عليكم", ["سلام", "عليكم"], id="right to left"),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


@unhurried
@given(st.text())
def test_places_cover_all_but_white_space(text: str) -> None:
    found = words(text)
    end = 0
    for word in found:
        assert text[word.start : word.end] == word.text != ""
        assert not text[end : word.start].strip()
        assert not re.search(r"\s", word.text)
        end = word.end
    assert not text[end:].strip()


@unhurried
@given(st.text())
def test_lower_case_has_the_same_words(text: str) -> None:
    def lower(string: str) -> str:
        return "".join(character.lower() for character in string)

    assert texts(lower(text)) == [lower(word) for word in texts(text)]


@unhurried
@given(st.characters(categories=("Mn", "Mc", "Me")))
def test_every_mark_stays_with_its_letter(mark: str) -> None:
    assert unicodedata.category(mark).startswith("M")
    assert texts(f"e{mark}t") == [f"e{mark}t"]


@pytest.mark.parametrize(
    "text",
    [
        "The cat sits on the mat.",
        "C'è l'uomo (forse), ma dell'acqua no!",
        'He said "no" twice, "yes" once; don\'t ask.',
        "Costs $5 or 7%: 3.14/2 = 1.57, at 10:30?",
        "“So” «così» [1] a_b",
    ],
)
def test_usual_text_is_written_back_as_it_was(text: str) -> None:
    assert join_words(texts(text)) == text


@unhurried
@given(st.text(alphabet="aBè7 .,:;!?'’\"()[]-_/%$#«»“”<>🇮🇹👩…"))
def test_joined_words_are_the_same_words(text: str) -> None:
    found = texts(text)
    assert texts(join_words(found)) == found


def test_nothing_joins_to_nothing() -> None:
    assert join_words([]) == ""
