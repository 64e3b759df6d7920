"""Clauses: scenes told with a subject, a verb group, objects, places, adverbs and relative clauses."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from headlights.translation.corpus.grammar.lexicon import LIVING, Adjective, Noun, Scene, Verb, lexicon
from headlights.translation.corpus.grammar.nouns import (
    Choices,
    Determiner,
    NounPhrase,
    noun_key,
    noun_phrase,
    preposition,
)
from headlights.translation.corpus.grammar.phrases import Phrase, say
from headlights.translation.corpus.grammar.verbs import (
    MODALS,
    Agreement,
    Mood,
    Tense,
    be,
    moods,
    there_is,
    verb_group,
)

# Their negation would be another word: no man, few men.
_QUANTIFIED: Sequence[Determiner] = ("every", "lot")
_COUNTED: Sequence[Determiner] = ("lot", "a", "number")
_LOCATIVE: Sequence[Determiner] = ("the", "this", "a", "my")
_SUBJECT: Sequence[Determiner] = ("the", "a", "this", "my", "number", "lot", "every")
# Verbs that suit any object, and so decide for no sense.
_NEUTRAL = ("look_for", "find", "see")
# Under this name scenes of being somewhere are counted among the verbs.
_BE = "be"
_WHEN: Mapping[Tense, Sequence[tuple[str, str]]] = {
    "present": (("today", "oggi"), ("every day", "ogni giorno")),
    "past": (("yesterday", "ieri"),),
}


@cache
def actions_of() -> Mapping[str, tuple[Scene, ...]]:
    """Return for each noun that can act the general scenes in which it does."""
    actions: defaultdict[str, list[Scene]] = defaultdict(list)
    for scene in lexicon().scenes:
        for noun in scene.subjects if scene.verbs else ():
            actions[noun.key].append(scene)
    return {key: tuple(scenes) for key, scenes in actions.items()}


def choose_scene(choices: Choices, ambiguous: float = 0.7) -> Scene:
    """Return a scene; with the chance `ambiguous`, one that decides a sense; every sense is as likely."""
    book = lexicon()
    if choices.happens(ambiguous):
        sense = choices.pick(tuple(book.scenes_of), lambda key: f"scene {key}")
        return _rare(choices, book.scenes_of[sense])
    return _rare(choices, book.scenes)


def _rare(choices: Choices, scenes: Sequence[Scene]) -> Scene:
    """Return of three random scenes the one whose verbs were used less so far."""
    drawn = choices.rng.choices(scenes, k=3)
    return min(
        drawn,
        key=lambda scene: min((choices.told[verb.key] for verb in scene.verbs), default=choices.told[_BE]),
    )


def _verb_key(verb: Verb) -> str:
    return verb.key


def clause(
    choices: Choices, *, tense: Tense = "present", question: bool = False, scene: Scene | None = None
) -> Phrase:
    """Return a whole clause without final mark; a question has English word order of questions."""
    scene = scene or choose_scene(choices)
    noun = choices.pick(scene.subjects, noun_key)
    if not scene.verbs:
        return _being(choices, scene, noun, tense, question=question)
    subject = subject_of(choices, noun, relative=not question)
    return predicate(choices, scene, subject, tense, question=question)


def predicate(
    choices: Choices, scene: Scene, subject: NounPhrase, tense: Tense, *, question: bool = False
) -> Phrase:
    """Return the subject and what it does in this scene."""
    verbs = [verb for verb in scene.verbs if verb.past or tense == "present"]
    if not verbs:
        verbs, tense = list(scene.verbs), "present"
    verb = choices.pick(verbs, _verb_key)
    agreement = Agreement(subject.plural, subject.gender, tense)

    def form_of(mood: Mood) -> str:
        return f"{verb.key} {'infinitive' if mood in MODALS else subject.plural}"

    fit = moods(
        verb, tense, acting=subject.noun.group in LIVING, negatable=subject.determiner not in _QUANTIFIED
    )
    mood = "plain" if question else choices.pick(fit, form_of)
    group = verb_group(verb, agreement, mood, question=question)
    rest, nouns = _complements(choices, scene, verb)
    _record(choices, scene, [subject.noun, *nouns], verb)
    when = _when(choices, tense) if mood in ("plain", "not") and not _is_state(verb) else Phrase()
    return Phrase(group.moved) + subject.phrase + group.phrase + rest + when


def _is_state(verb: Verb) -> bool:
    return not verb.infinitive


def _when(choices: Choices, tense: Tense) -> Phrase:
    if not choices.happens(0.08 + choices.richness / 6):
        return Phrase()
    return say(*choices.rng.choice(_WHEN[tense]))


def _complements(choices: Choices, scene: Scene, verb: Verb) -> tuple[Phrase, list[Noun]]:
    """Return the objects and the place, and those of their nouns that may decide a sense."""
    rest, nouns = Phrase(), []
    if scene.objects:
        noun = choices.pick(scene.objects, noun_key)
        nouns.append(noun)
        allowed: Sequence[Determiner] = ("the", "a", "this", "my", "number", "lot")
        if verb.key == "have":
            allowed = _COUNTED
        if scene.sense is None:
            choices.combinations.add(("object", verb.key, noun.key))
        head = noun_phrase(choices, noun, allowed)
        rest = head.phrase if scene.places else with_relative(choices, head, last=True)
    if scene.places and (not scene.optional or choices.happens(0.15 + choices.richness * 0.7)):
        place = choices.rng.choice(scene.places)
        noun = choices.pick(place.nouns, lambda each: f"{place.preposition} {each.key}")
        if not scene.optional:
            nouns.append(noun)
        rest += preposition(place.preposition, noun_phrase(choices, noun, _LOCATIVE))
    return rest, nouns


def _record(choices: Choices, scene: Scene, nouns: Sequence[Noun], verb: Verb | None) -> None:
    """Remember which words decided the sense: the nouns beside the ambiguous one, else the verb."""
    if scene.sense is None:
        return
    deciding = [noun.key for noun in nouns if noun is not scene.sense]
    if not deciding and verb is not None:
        deciding = [verb.key]
    choices.combinations.update(("sense", scene.sense.key, word) for word in deciding)


def _being(choices: Choices, scene: Scene, noun: Noun, tense: Tense, *, question: bool) -> Phrase:
    """Tell where something is: there is a plate on the table, the plate is on the table."""
    choices.chosen.append(_BE)
    place = choices.rng.choice(scene.places)
    where = choices.pick(place.nouns, lambda each: f"{place.preposition} {each.key}")
    _record(choices, scene, [noun, where], None)
    there = place.preposition != "of" and choices.happens(0.5)
    subject = (
        noun_phrase(choices, noun, _COUNTED) if there else subject_of(choices, noun, relative=not question)
    )
    agreement = Agreement(subject.plural, subject.gender, tense)
    location = preposition(place.preposition, noun_phrase(choices, where, _LOCATIVE))
    if there:
        return there_is(agreement, question=question) + subject.phrase + location
    negatable = not question and scene.sense is None and subject.determiner not in _QUANTIFIED
    verb = be(agreement, negated=negatable and choices.happens(0.2))
    if question:
        return Phrase(verb.source) + subject.phrase + Phrase([], verb.target) + location
    return subject.phrase + verb + location


def qualities(subject: NounPhrase) -> list[Adjective]:
    """Return the adjectives that can still be said of it."""
    said = subject.adjective
    return [each for each in subject.noun.adjectives if not said or each.allows(said)]


def quality(
    choices: Choices, subject: NounPhrase, tense: Tense, *, question: bool = False, continued: bool = False
) -> Phrase:
    """Return "NOUN is ADJECTIVE", perhaps graded, or negated unless `continued`."""
    agreement = Agreement(subject.plural, subject.gender, tense)
    adjective = choices.pick(qualities(subject), lambda each: f"{each.english} {subject.gender}")
    choices.combinations.add(("adjective", subject.noun.key, adjective.english))
    described = say(adjective.english, adjective.agree(subject.gender, subject.plural))
    negated = False
    if choices.happens(0.3):
        described = say("very", "molto") + described
    elif not question and not continued and subject.determiner not in _QUANTIFIED:
        negated = choices.happens(0.2)
    verb = be(agreement, negated=negated)
    if question:
        return Phrase(verb.source) + subject.phrase + Phrase([], verb.target) + described
    return subject.phrase + verb + described


def subject_of(choices: Choices, noun: Noun, *, relative: bool = True) -> NounPhrase:
    """Return a noun phrase as subject, perhaps with a relative clause if one is allowed."""
    subject = noun_phrase(choices, noun, _SUBJECT)
    if relative:
        subject.phrase = with_relative(choices, subject, last=False)
    return subject


def with_relative(choices: Choices, head: NounPhrase, *, last: bool) -> Phrase:
    """Return the noun phrase, perhaps with "that the man looks for" or "who sings"."""
    chance = choices.richness / (2 if last else 3)
    if not choices.happens(chance) or head.determiner == "every" or head.owned:
        return head.phrase
    noun = head.noun
    if noun.group in LIVING and noun.key in actions_of():
        return head.phrase + _acting(choices, head)
    if noun.group in ("nature", "place", "other"):
        return head.phrase
    return head.phrase + _wanted(choices)


def _acting(choices: Choices, head: NounPhrase) -> Phrase:
    """Return a relative clause whose subject is the head: who reads the book."""
    scene = choices.rng.choice(actions_of()[head.noun.key])
    verb = choices.pick(scene.verbs, _verb_key)
    group = verb_group(verb, Agreement(head.plural, head.gender))
    nested = replace(choices, richness=0.0)
    rest, _ = _complements(nested, scene, verb)
    return say("that" if head.noun.group == "animal" else "who", "che") + group.phrase + rest


def _wanted(choices: Choices) -> Phrase:
    """Return a relative clause whose object is the head, true of anything: that the man looks for."""
    book = lexicon()
    verb = book.verbs[choices.rng.choice(_NEUTRAL)]
    tense: Tense = "past" if choices.happens(0.4) else "present"
    subject = noun_phrase(choices, choices.pick(book.neutral, noun_key), ("the", "my", "this"), plain=True)
    group = verb_group(verb, Agreement(subject.plural, subject.gender, tense))
    return say("that", "che") + subject.phrase + group.phrase
