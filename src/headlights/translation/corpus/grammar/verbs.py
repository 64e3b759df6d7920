"""Verb groups: tense, negation, modals and the adverbs that stand inside them."""

from dataclasses import dataclass, field
from typing import Literal

from headlights.translation.corpus.grammar.agreement import Gender
from headlights.translation.corpus.grammar.lexicon import Verb
from headlights.translation.corpus.grammar.phrases import Phrase, Target, Word, say

Mood = Literal["plain", "not", "can", "must", "want", "always", "never"]
Tense = Literal["present", "past"]

# English, Italian singular, Italian plural.
MODALS = {
    "can": ("can", "can", "può", "possono"),
    "must": ("must", "must", "deve", "devono"),
    "want": ("wants", "want", "vuole", "vogliono"),
}
_ADVERBS = {"always": "sempre", "never": "mai"}
_BE = {
    ("present", False): ("is", "è"),
    ("present", True): ("are", "sono"),
    ("past", False): ("was", "era"),
    ("past", True): ("were", "erano"),
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """What the verb agrees with and when."""

    plural: bool
    gender: Gender
    tense: Tense = "present"


@dataclass(slots=True)
class VerbGroup:
    """A verb with all that belongs to it.

    Attributes:
        phrase: The group, without what a question moves.
        moved: The English auxiliary, which a question puts before the subject.
    """

    phrase: Phrase
    moved: list[Word] = field(default_factory=list)


def moods(verb: Verb, tense: Tense, *, acting: bool, negatable: bool) -> tuple[Mood, ...]:
    """Return the moods that the corpus uses with this verb; one without infinitive is a state.

    Args:
        verb: The verb.
        tense: Only the present has modals and adverbs of frequency.
        acting: Whether the subject is somebody who wants, can and must.
        negatable: Whether the subject goes with a negated verb.

    Returns:
        One or more moods, the plain one twice because it is the most usual.
    """
    frequent = tense == "present" and bool(verb.infinitive)
    fit: list[Mood] = ["plain", "plain"]
    if negatable:
        fit.append("not")
    if frequent:
        fit.append("always")
    if frequent and negatable:
        fit.append("never")
    if frequent and acting:
        fit += ["can", "must", "want"]
    return tuple(fit)


def verb_group(
    verb: Verb, agreement: Agreement, mood: Mood = "plain", *, question: bool = False
) -> VerbGroup:
    """Return the verb in the tense, number and mood asked for; a question is plain."""
    particle = [Word(verb.particle)] if verb.particle else []
    if mood in MODALS:
        return VerbGroup(_modal(verb, agreement, mood, particle))
    if question or mood == "not":
        return _supported(verb, agreement, particle, negated=mood == "not")
    if agreement.tense == "past":
        word = Word(verb.past)
        auxiliary, form = _perfect(verb, agreement)
        target = [Target(auxiliary, (word,)), Target(form, (word,), tuple(particle))]
        return VerbGroup(Phrase([word, *particle], target))
    word = Word(verb.base if agreement.plural else verb.third)
    target = _present(verb, agreement, word, particle)
    if mood in _ADVERBS:
        adverb = Word(mood)
        target.append(Target(_ADVERBS[mood], (adverb,)))
        if mood == "never":
            target.insert(0, Target("non", (adverb,)))
        return VerbGroup(Phrase([adverb, word, *particle], target))
    return VerbGroup(Phrase([word, *particle], target))


def be(agreement: Agreement, *, negated: bool = False) -> Phrase:
    """Return is, are, was or were."""
    english, italian = _BE[agreement.tense, agreement.plural]
    verb = Word(english)
    if not negated:
        return Phrase([verb], [Target(italian, (verb,))])
    no = Word("not")
    return Phrase([verb, no], [Target("non", (no,)), Target(italian, (verb,))])


def there_is(agreement: Agreement, *, question: bool = False) -> Phrase:
    """Return "there is", c'è, which elides before all but sono; a question turns the English words round."""
    english, italian = _BE[agreement.tense, agreement.plural]
    there, verb = Word("there"), Word(english)
    source = [verb, there] if question else [there, verb]
    elided = "c'" if italian[0] in "eè" else "ci"
    return Phrase(source, [Target(elided, (there,)), Target(italian, (verb,))])


def says_that(agreement: Agreement, verb: Verb) -> Phrase:
    """Return says that, knows that."""
    return verb_group(verb, agreement).phrase + say("that", "che")


def _present(verb: Verb, agreement: Agreement, word: Word, possible: list[Word]) -> list[Target]:
    forms = verb.plural if agreement.plural else verb.singular
    return [Target(form, (word,), tuple(possible)) for form in forms]


def _perfect(verb: Verb, agreement: Agreement) -> tuple[str, str]:
    return "hanno" if agreement.plural else "ha", verb.participle


def _modal(verb: Verb, agreement: Agreement, mood: Mood, particle: list[Word]) -> Phrase:
    singular, plural, *italian = MODALS[mood]
    modal, base = Word(plural if agreement.plural else singular), Word(verb.base)
    to = [Word("to")] if mood == "want" else []
    target = [
        Target(italian[agreement.plural], (modal,)),
        Target(verb.infinitive, (base,), (*to, *particle)),
    ]
    return Phrase([modal, *to, base, *particle], target)


def _supported(verb: Verb, agreement: Agreement, particle: list[Word], *, negated: bool) -> VerbGroup:
    """Return the verb with do, as in questions and negations."""
    past = agreement.tense == "past"
    do = Word("did" if past else "do" if agreement.plural else "does")
    base = Word(verb.base)
    if past:
        auxiliary, form = _perfect(verb, agreement)
        target = [Target(auxiliary, (do,), (base,)), Target(form, (base,), tuple(particle))]
    else:
        target = _present(verb, agreement, base, [do, *particle])
    if not negated:
        return VerbGroup(Phrase([base, *particle], target), [do])
    no = Word("not")
    return VerbGroup(Phrase([do, no, base, *particle], [Target("non", (no,)), *target]))
