"""Draws the parts of the embedded corpus's sentences: subjects, places, predicates."""

import random

import lexicon
from grammar import (
    NO_ARTICLE,
    THE,
    A,
    Adjective,
    Both,
    Noun,
    Phrase,
    Predicate,
    Subject,
    Verb,
    contract,
    join,
)
from tables import grammar, nouns_with, places_of

UNOWNED = ("people", "wild", "near", "drink", "dish")  # tags of nouns that take no possessive


class PartSampler:
    """Draws the parts of sentences. Complete parts are returned in both languages."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.grammar = grammar()

    def chance(self, share: float) -> bool:
        """True with probability `share`."""
        return self.rng.random() < share

    def phrase(self, noun: Noun, plural: bool, determiner: Both, modified: float) -> Phrase:
        """A noun phrase. With probability `modified` it has an adjective, and rarely two."""
        if "mass" in noun.tags:
            plural, determiner = False, NO_ARTICLE
        plain, colours = (group.get(noun.adjectives, []) for group in (self.grammar.adjectives, self.grammar.colours))
        found: tuple[Adjective, ...] = ()
        if self.chance(modified) or noun.adjectives == "hair":
            found = (self.rng.choice(plain + colours),)
            if colours and found[0] in plain and self.chance(0.15):
                found = (found[0], self.rng.choice(colours))
        return Phrase(noun, plural, determiner, found)

    def determiner(self, plural: bool, definite: float) -> Both:
        """An article, a number, a quantity or nothing."""
        if self.chance(definite):
            return THE
        if not plural:
            return A
        draw = self.rng.random()
        if draw < 0.2:
            return NO_ARTICLE
        return self.rng.choice(self.grammar.numbers if draw < 0.65 else self.grammar.quantities)

    def subject_phrase(self, who: str, modified: float = 0.4) -> Phrase:
        """A person or animal (people, animal, wild) or a vehicle (road)."""
        plural = self.chance(0.3)
        noun = self.rng.choice(nouns_with(who))
        return self.phrase(noun, plural, self.determiner(plural, 0.25), modified)

    def subject(self, plain: bool = False, active: bool = False) -> tuple[str, Subject]:
        """The class of a subject, and the subject. `plain` allows only one noun; `active` excludes vehicles."""
        draw = self.rng.random()
        who = "people" if draw < 0.74 else "animal" if draw < 0.9 else "wild" if active or draw < 0.95 else "road"
        phrase = self.subject_phrase(who)
        en, de, plural, gender = phrase.english(), phrase.german("nom"), phrase.plural, phrase.gender
        pronoun = "they" if plural else phrase.noun.pronoun
        draw = self.rng.random() if who == "people" and not plain else 1.0
        if draw < 0.12:
            detail_en, detail_de = self.appearance(plural)
            en, de = join(en, detail_en), join(de, detail_de)
        elif draw < 0.22 and not plural:
            other = self.phrase(self.other(phrase.noun, "people"), False, phrase.determiner, 0.3)
            en, de = f"{en} and {other.english()}", f"{de} und {other.german('nom')}"
            plural, pronoun, gender = True, "they", "plural"
        return who, Subject(en, de, plural, pronoun, gender, phrase.noun)

    def other(self, noun: Noun | None, *tags: str) -> Noun:
        """A noun with one of the tags, other than the given one."""
        return self.rng.choice([found for found in nouns_with(*tags) if found is not noun])

    def appearance(self, plural: bool) -> Both:
        """In a red coat, with long hair."""
        tag = self.rng.choice(("in", "in", "have", "hair"))
        noun = self.rng.choice(nouns_with(tag))
        phrase = self.phrase(noun, plural, NO_ARTICLE if plural else A, 0.6)
        en, de = ("in", "in") if tag == "in" else ("with", "mit")
        return f"{en} {phrase.english()}", f"{de} {phrase.german('dat')}"

    def place(self, kinds: str, avoid: Noun | None = None) -> Both:
        """Where: in the garden, behind an old house."""
        determiner = A if self.chance(0.3) else THE
        if set(kinds) & set("ov") and self.chance(0.3):
            en, de = self.rng.choice(self.grammar.near)
            phrase = self.phrase(self.other(avoid, "near"), False, determiner, 0.3)
            return f"{en} {phrase.english()}", contract(de, phrase.german("dat"))
        place = self.rng.choice(places_of(kinds))
        phrase = self.phrase(place.noun, False, determiner, 0.25)
        return f"{place.en} {phrase.english()}", contract(place.de, phrase.german("dat"))

    def direction(self, kinds: str) -> Both:
        """Where to: into the garden."""
        place = self.rng.choice(places_of(kinds))
        phrase = self.phrase(place.noun, False, A if self.chance(0.3) else THE, 0.25)
        return f"{place.en_towards} {phrase.english()}", contract(place.de, phrase.german("acc"))

    def adverb(self, verb: Verb, plural: bool) -> Both:
        """An adverb, if the verb can take one; mostly empty."""
        if not self.chance(0.2) or not set(verb.how) & set("as") or "!" in verb.how:
            return "", ""
        if not verb.objects and self.chance(0.3):
            return lexicon.TOGETHER if plural else lexicon.ALONE
        return self.rng.choice(self.grammar.adverbs["a" if "a" in verb.how and self.chance(0.6) else "s"])

    def object_phrase(self, verb: Verb, subject: Subject) -> Phrase:
        """The object of a verb."""
        noun = self.other(subject.noun, *verb.objects)
        plural = subject.plural if "=" in verb.how else "1" not in verb.how and self.chance(0.25)
        determiner = self.determiner(plural, 0.25)
        if "people" in subject.noun.tags and self.chance(0.2) and noun.tags.isdisjoint(UNOWNED):
            determiner = lexicon.POSSESSIVES[subject.pronoun], "sein" if subject.gender in ("m", "n") else "ihr"
        elif "=" in verb.how and plural and determiner[1] not in ("", "der"):
            determiner = NO_ARTICLE
        return self.phrase(noun, plural, determiner, 0.3)

    def predicate(
        self, who: str, subject: Subject, located: float, marks: str = "", busy: bool = False, avoid: str = ""
    ) -> Predicate:
        """A predicate for the subject. With probability `located` it has a place.

        `marks` allows only voluntary verbs with one of these marks. `avoid` excludes a verb by its infinitive. `busy`
        allows only verbs with an object that do not move the subject.
        """
        draw = self.rng.random()
        if draw < 0.1 and who == "people" and marks != "s":
            return self.giving(subject)
        if draw < 0.17 and who != "road" and marks != "s" and not busy:
            return self.moving(who, subject)
        while True:
            verb = self.rng.choice(self.grammar.verbs[who])
            if verb.infinitive == avoid or (marks and ("!" in verb.how or not set(marks) & set(verb.how))):
                continue
            if not busy or (verb.objects and verb.place.strip("-")):
                return self.acting(verb, subject, located)

    def acting(self, verb: Verb, subject: Subject, located: float) -> Predicate:
        """A verb with its object, adverb and place. German order: definite object, adverb, place, new object."""
        adverb_en, adverb_de = self.adverb(verb, subject.plural)
        english = early = late = ""
        noun = subject.noun
        if verb.objects:
            phrase = self.object_phrase(verb, subject)
            english, german, noun = phrase.english(), phrase.german(verb.case), phrase.noun
            if verb.preposition:
                late = contract(verb.preposition, german)
            elif phrase.definite:
                early = german
            else:
                late = german
        place = self.place(verb.place, noun) if verb.place.strip("-") and self.chance(located) else ("", "")
        return Predicate(verb, join(english, adverb_en), join(early, adverb_de), late, place)

    def moving(self, who: str, subject: Subject) -> Predicate:
        """A predicate of going somewhere."""
        verb = self.rng.choice(self.grammar.motion)
        adverb_en, adverb_de = self.adverb(verb, subject.plural)
        en, de = self.direction("io" if who == "people" else "o")
        return Predicate(verb, join(adverb_en, en), adverb_de, de)

    def giving(self, subject: Subject) -> Predicate:
        """A predicate of giving a thing to a person. In German, the person comes first."""
        verb = self.rng.choice(self.grammar.giving["read" if self.chance(0.15) else "give"])
        thing, plural = self.object_phrase(verb, subject), self.chance(0.2)
        person = self.phrase(self.other(subject.noun, "people"), plural, self.determiner(plural, 0.3), 0.3)
        english = f"{thing.english()} to {person.english()}"
        return Predicate(verb, english, person.german("dat"), thing.german("acc"))
