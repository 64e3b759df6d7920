"""The lexicon of the built-in corpus, read from `lexicon.toml`."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, cast

from headlights.translation.corpus.grammar.agreement import Gender

# Those who want, can and must, and are told by what they do: who sings.
LIVING = frozenset({"anyone", "person", "animal"})
# Adjectives of which a thing has only one.
_CONTRARY = ({"big", "small"}, {"new", "old"}, {"red", "black"})


@dataclass(frozen=True, slots=True)
class Adjective:
    """An adjective with its four Italian forms: masculine, feminine, masculine plural, feminine plural."""

    english: str
    italian: tuple[str, ...]

    def agree(self, gender: Gender, plural: bool) -> str:
        """Return the Italian form for a noun of this gender and number."""
        return self.italian[2 * plural + (gender == "f")]

    def allows(self, other: "Adjective") -> bool:
        """Whether the same thing can be this and the other."""
        return self != other and {self.english, other.english} not in _CONTRARY


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun in both languages.

    Attributes:
        key: Its name in the lexicon: the English word; both words (table/tavolo) if it is ambiguous.
        english: English singular and plural; empty where the corpus has none.
        italian: Italian singular and plural; empty where the corpus has none.
        gender: Of the Italian noun.
        group: What kind of thing it is.
        mass: Whether it is never counted.
        adjectives: Those that make sense with it.
        ambiguous: Whether its English word has another sense in the corpus.
    """

    key: str
    english: tuple[str, str]
    italian: tuple[str, str]
    gender: Gender
    group: str
    mass: bool
    adjectives: tuple[Adjective, ...]
    ambiguous: bool = False


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb in both languages; an empty form is one that the corpus does not use.

    Attributes:
        key: Its name in the lexicon.
        base: English base form, also the present plural.
        third: English third person singular.
        past: English past.
        particle: English preposition that belongs to the verb: look *for*.
        singular: Italian third person singular of the present, as words.
        plural: Italian third person plural of the present, as words.
        infinitive: Italian infinitive.
        participle: Italian participle, masculine singular.
    """

    key: str
    base: str
    third: str
    past: str
    particle: str
    singular: tuple[str, ...]
    plural: tuple[str, ...]
    infinitive: str
    participle: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where, or with what: an English preposition and the nouns that may follow it."""

    preposition: str
    nouns: tuple[Noun, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """Something that happens: who may do what, to what, and where.

    Attributes:
        subjects: Who or what.
        verbs: Does what; empty in a scene of being somewhere.
        objects: To what; empty for an intransitive verb.
        places: One of these follows; empty for none.
        optional: Whether the place may be left out.
        sense: The ambiguous noun whose sense the other words decide, if there is one.
    """

    subjects: tuple[Noun, ...]
    verbs: tuple[Verb, ...]
    objects: tuple[Noun, ...]
    places: tuple[Place, ...]
    optional: bool
    sense: Noun | None = None


@dataclass(frozen=True)
class Lexicon:
    """All words and scenes.

    Attributes:
        nouns: Those that are not ambiguous, by key.
        groups: Nouns by group.
        verbs: By key.
        senses: For each ambiguous English noun (its singular), its two senses.
        scenes: Scenes without an ambiguous noun.
        scenes_of: For the key of each sense, the scenes that decide for it.
        held_out: A sense and a noun that decides it, by their keys, never shown together in training.
        people: All that can own, say and look for something.
        neutral: People who could do anything, and so decide for no sense.
    """

    nouns: Mapping[str, Noun]
    groups: Mapping[str, tuple[Noun, ...]]
    verbs: Mapping[str, Verb]
    senses: Mapping[str, tuple[Noun, ...]]
    scenes: tuple[Scene, ...]
    scenes_of: Mapping[str, tuple[Scene, ...]]
    held_out: frozenset[tuple[str, str]]
    people: tuple[Noun, ...]
    neutral: tuple[Noun, ...]


@cache
def lexicon() -> Lexicon:
    """Return the lexicon, read once."""
    text = (
        resources.files("headlights.translation.corpus.grammar").joinpath("lexicon.toml").read_text("utf-8")
    )
    data = tomllib.loads(text)
    adjectives = {adjective.english: adjective for adjective in _adjectives(data["adjectives"]["all"])}
    fitting = {
        group: tuple(adjectives[word] for word in words.split())
        for group, words in data["adjectives"]["of"].items()
    }
    groups = {
        group: tuple(_noun(line, group, fitting.get(group, ())) for line in _rows(table))
        for group, table in data["nouns"].items()
    }
    senses = dict(_senses(data["ambiguous"]["nouns"], adjectives))
    plain = [noun for group in groups.values() for noun in group]
    nouns = {noun.key: noun for noun in plain}
    sense_nouns = {noun.italian[0]: noun for pair in senses.values() for noun in pair}
    verbs = {verb.key: verb for verb in map(_verb, _rows(data["verbs"]["all"]))}
    words = _Names(nouns, groups, verbs)
    scenes = data["scenes"]
    return Lexicon(
        nouns=nouns,
        groups=groups,
        verbs=verbs,
        senses=senses,
        scenes=tuple(words.scene(line, None) for line in _rows(scenes["general"])),
        scenes_of={
            sense_nouns[word].key: tuple(words.scene(line, sense_nouns[word]) for line in _rows(table))
            for word, table in scenes["senses"].items()
        },
        held_out=frozenset(
            (sense_nouns[sense].key, noun)
            for sense, noun in map(str.split, _rows(data["held_out"]["deciding"]))
        ),
        people=groups["anyone"] + tuple(nouns[key] for key in ("student", "doctor", "nurse")),
        neutral=groups["anyone"],
    )


@dataclass(frozen=True)
class _Names:
    """Finds the nouns and verbs that a scene names."""

    nouns: Mapping[str, Noun]
    groups: Mapping[str, tuple[Noun, ...]]
    verbs: Mapping[str, Verb]

    def find(self, names: str, sense: Noun | None) -> tuple[Noun, ...]:
        found: list[Noun] = []
        for name in names.split():
            if name == "*" and sense is not None:
                found.append(sense)
            elif name.startswith("@"):
                found += self.groups[name[1:]]
            else:
                found.append(self.nouns[name])
        return tuple(found)

    def scene(self, line: str, sense: Noun | None) -> Scene:
        subjects, verbs, objects, places = (field.strip() for field in line.split("|"))
        optional = places.startswith("?")
        choices = [place.split(maxsplit=1) for place in places.removeprefix("?").split(";") if place.strip()]
        return Scene(
            subjects=self.find(subjects, sense),
            verbs=() if verbs == "be" else tuple(self.verbs[verb] for verb in verbs.split()),
            objects=self.find(objects, sense),
            places=tuple(Place(preposition, self.find(names, sense)) for preposition, names in choices),
            optional=optional,
            sense=sense,
        )


def _rows(table: str) -> Iterator[str]:
    return (line for line in table.splitlines() if line.strip())


def _form(text: str) -> str:
    return "" if text in ("-", "~") else text


def _adjectives(table: str) -> Iterator[Adjective]:
    for line in _rows(table):
        english, italian = line.split("|")
        yield Adjective(english.strip(), tuple(italian.split()))


def _noun(line: str, group: str, adjectives: tuple[Adjective, ...]) -> Noun:
    singular, plural, gender, *italian = line.split()
    key = plural if singular == "-" else singular
    forms = cast(tuple[str, str], tuple(map(_form, italian)))
    english = (_form(singular), _form(plural))
    return Noun(key, english, forms, cast(Gender, gender), group, plural == "~", adjectives)


def _senses(table: str, adjectives: Mapping[str, Adjective]) -> Iterator[tuple[str, tuple[Noun, ...]]]:
    for line in _rows(table):
        english, *senses, fitting = (field.split() for field in line.split("|"))
        forms = (english[0], _form(english[1]))
        fits = tuple(adjectives[word] for word in fitting)
        yield (
            english[0],
            tuple(
                Noun(
                    key=f"{english[0]}/{singular}",
                    english=forms,
                    italian=(singular, _form(plural)),
                    gender=cast(Gender, gender),
                    group="ambiguous",
                    mass=False,
                    adjectives=fits,
                    ambiguous=True,
                )
                for gender, singular, plural in senses
            ),
        )


def _verb(line: str) -> Verb:
    english, italian = (field.split() for field in line.split("|"))
    key, base, third, past, particle = _english_verb(english)
    singular, plural, infinitive, participle = italian
    return Verb(
        key=key,
        base=base,
        third=third,
        past=_form(past),
        particle=particle,
        singular=tuple(singular.split("_")),
        plural=tuple(plural.split("_")),
        infinitive=_form(infinitive),
        participle=_form(participle),
    )


def _english_verb(fields: list[str]) -> tuple[Any, ...]:
    # A name of its own comes first where the base form is not the name.
    key, *forms = fields if "_" in fields[0] or ":" in fields[0] else [fields[0], *fields]
    return (key, *forms, "") if len(forms) == 3 else (key, *forms)
