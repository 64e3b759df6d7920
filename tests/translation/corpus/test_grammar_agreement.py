"""Italian articles, contractions and agreement against forms checked by hand."""

import pytest

from headlights.translation.corpus.grammar import agreement
from headlights.translation.corpus.grammar.agreement import Gender
from headlights.translation.corpus.grammar.lexicon import lexicon

# Noun, gender: the, a, this, on the (singular).
SINGULAR: list[tuple[str, Gender, str, str, str, str]] = [
    ("gatto", "m", "il", "un", "questo", "sul"),
    ("casa", "f", "la", "una", "questa", "sulla"),
    ("uomo", "m", "l'", "un", "quest'", "sull'"),
    ("isola", "f", "l'", "un'", "quest'", "sull'"),
    ("hotel", "m", "l'", "un", "quest'", "sull'"),
    ("studente", "m", "lo", "uno", "questo", "sullo"),
    ("specchio", "m", "lo", "uno", "questo", "sullo"),
    ("scienziato", "m", "lo", "uno", "questo", "sullo"),
    ("zaino", "m", "lo", "uno", "questo", "sullo"),
    ("gnomo", "m", "lo", "uno", "questo", "sullo"),
    ("psicologo", "m", "lo", "uno", "questo", "sullo"),
    ("yogurt", "m", "lo", "uno", "questo", "sullo"),
    ("pneumatico", "m", "lo", "uno", "questo", "sullo"),
    ("sale", "m", "il", "un", "questo", "sul"),
    ("stazione", "f", "la", "una", "questa", "sulla"),
    ("zia", "f", "la", "una", "questa", "sulla"),
    ("piatto", "m", "il", "un", "questo", "sul"),
]


@pytest.mark.parametrize("case", SINGULAR, ids=lambda case: case[0])
def test_singular_determiners(case: tuple[str, Gender, str, str, str, str]) -> None:
    noun, gender, the, a, this, on_the = case
    assert agreement.definite(gender, False, noun) == the
    assert agreement.indefinite(gender, noun) == a
    assert agreement.demonstrative(gender, False, noun) == this
    assert agreement.contract("su", the) == on_the


@pytest.mark.parametrize(
    ("noun", "gender", "the", "this"),
    [
        ("gatti", "m", "i", "questi"),
        ("uomini", "m", "gli", "questi"),
        ("studenti", "m", "gli", "questi"),
        ("zii", "m", "gli", "questi"),
        ("isole", "f", "le", "queste"),
        ("case", "f", "le", "queste"),
    ],
)
def test_plural_determiners(noun: str, gender: Gender, the: str, this: str) -> None:
    assert agreement.definite(gender, True, noun) == the
    assert agreement.demonstrative(gender, True, noun) == this


def test_contractions() -> None:
    # A grammar's table: rows are prepositions, columns il lo l' la i gli le.
    table = {
        "di": "del dello dell' della dei degli delle",
        "a": "al allo all' alla ai agli alle",
        "da": "dal dallo dall' dalla dai dagli dalle",
        "in": "nel nello nell' nella nei negli nelle",
        "su": "sul sullo sull' sulla sui sugli sulle",
    }
    for preposition, forms in table.items():
        articles = ["il", "lo", "l'", "la", "i", "gli", "le"]
        assert [agreement.contract(preposition, article) for article in articles] == forms.split()
    assert agreement.contract("con", "il") is None
    assert agreement.contract("in", "un") is None
    assert agreement.contract("in", "gatto") is None


def test_an_adjective_before_the_noun_decides_the_article() -> None:
    assert agreement.Article("the", "m", False).form("piccolo") == "il"
    assert agreement.Article("the", "m", False).form("specchio") == "lo"
    assert agreement.Article("a", "f", False).form("isola") == "un'"
    assert agreement.Article("a", "f", False).form("piccola") == "una"
    assert agreement.Article("this", "m", True).form("alberi") == "questi"


@pytest.mark.parametrize(
    ("english", "forms"),
    [
        ("red", "rosso rossa rossi rosse"),
        ("big", "grande grande grandi grandi"),
        ("old", "vecchio vecchia vecchi vecchie"),
        ("happy", "felice felice felici felici"),
        ("tired", "stanco stanca stanchi stanche"),
    ],
)
def test_adjective_forms(english: str, forms: str) -> None:
    book = lexicon()
    every = {adjective.english: adjective for noun in book.nouns.values() for adjective in noun.adjectives}
    adjective = every[english]
    found = [adjective.agree(gender, plural) for plural in (False, True) for gender in ("m", "f")]
    assert found == forms.split()


@pytest.mark.parametrize(
    ("key", "gender", "singular", "plural"),
    [
        ("man", "m", "uomo", "uomini"),
        ("hand", "f", "mano", "mani"),
        ("pianist", "m", "pianista", "pianisti"),
        ("cook", "m", "cuoco", "cuochi"),
        ("doctor", "m", "medico", "medici"),
        ("friend", "m", "amico", "amici"),
        ("duck", "f", "anatra", "anatre"),
        ("leaf", "f", "foglia", "foglie"),
        ("computer", "m", "computer", "computer"),
    ],
)
def test_irregular_nouns(key: str, gender: str, singular: str, plural: str) -> None:
    noun = lexicon().nouns.get(key)
    assert noun is not None
    assert (noun.gender, *noun.italian) == (gender, singular, plural)


def test_every_adjective_and_verb_is_complete() -> None:
    book = lexicon()
    nouns = [*book.nouns.values(), *(noun for pair in book.senses.values() for noun in pair)]
    assert all(len(adjective.italian) == 4 for noun in nouns for adjective in noun.adjectives)
    assert all(verb.base and verb.third and verb.singular and verb.plural for verb in book.verbs.values())
    # Whoever has an English past has an Italian participle, and the other way round.
    assert all(bool(verb.past) == bool(verb.participle) for verb in book.verbs.values())
    # Both senses of an ambiguous word have the same numbers, so that number never tells them apart.
    for first, second in book.senses.values():
        assert [bool(form) for form in first.italian] == [bool(form) for form in second.italian]
        assert first.adjectives == second.adjectives
