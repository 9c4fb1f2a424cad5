"""Inflection and word order of the embedded corpus: noun phrases and predicates in English and German."""

import re
from dataclasses import dataclass
from functools import cache

import lexicon

Both = tuple[str, str]
"""The same thing in English and in German."""

THE, A, NO_ARTICLE = ("the", "der"), ("a", "ein"), ("", "")


@dataclass(frozen=True, slots=True)
class Noun:
    """One noun in both languages; `adjectives` is its adjective class, `tags` say what can be done with it."""

    en: str
    en_plural: str
    de: str
    gender: str
    de_plural: str
    weak: bool
    pronoun: str
    adjectives: str
    tags: frozenset[str]


@dataclass(frozen=True, slots=True)
class Adjective:
    """`de` stands alone (er ist müde), `stem` takes an ending (ein müder Mann)."""

    en: str
    de: str
    stem: str


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb in both languages; `case` is that of its object, `place` the kinds of places where it happens."""

    en: str
    infinitive: str
    third: str
    particle: str
    reflexive: bool
    preposition: str
    case: str
    objects: frozenset[str]
    place: str
    how: str


@dataclass(frozen=True, slots=True)
class Place:
    """A noun with its prepositions for being there and, in English, for going there."""

    noun: Noun
    en: str
    en_towards: str
    de: str
    kinds: str


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun phrase. `determiner` is the, a, nothing, a number, a quantity, or a possessive."""

    noun: Noun
    plural: bool = False
    determiner: Both = A
    adjectives: tuple[Adjective, ...] = ()

    @property
    def gender(self) -> str:
        """The key of the German agreement: m, f, n or plural."""
        return "plural" if self.plural else self.noun.gender

    @property
    def definite(self) -> bool:
        """Whether the phrase is definite (the, his); such an object comes early in a German clause."""
        return self.determiner[1] in ("der", "sein", "ihr")

    def english(self) -> str:
        """The phrase in English, the same in every position."""
        words = [adjective.en for adjective in self.adjectives]
        words.append(self.noun.en_plural if self.plural else self.noun.en)
        determiner = self.determiner[0]
        if determiner == "a" and re.match(r"[aeio]|u(?!ni)", words[0]):
            determiner = "an"
        return join(determiner, *words)

    def german(self, case: str) -> str:
        """The phrase in German in a case: nom, acc or dat."""
        column, determiner, kind = lexicon.GENDERS.index(self.gender), self.determiner[1], "strong"
        if determiner == "der":
            determiner, kind = lexicon.DEFINITE[case][column], "definite"
        elif determiner in ("ein", "sein", "ihr"):
            determiner, kind = determiner + lexicon.INDEFINITE[case][column], "mixed"
        elif determiner.endswith("e"):  # viele, mehrere: declined, unlike numbers
            determiner = determiner.removesuffix("e") + lexicon.ENDINGS["strong"][case][column]
        ending = lexicon.ENDINGS[kind][case][column]
        return join(determiner, *(a.stem + ending for a in self.adjectives), self.german_noun(case))

    def german_noun(self, case: str) -> str:
        """The German noun alone, inflected for number and case."""
        if not self.plural:
            return self.noun.de_plural if self.noun.weak and case != "nom" else self.noun.de
        needs_n = case == "dat" and self.noun.de_plural[-1] not in "ns"
        return self.noun.de_plural + "n" * needs_n


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a sentence in both languages."""

    en: str
    de: str
    plural: bool
    pronoun: str
    gender: str
    noun: Noun


@dataclass(frozen=True, slots=True)
class Predicate:
    """A clause without its subject.

    In English, `en` and then the place follow the verb. In German, `early`, the place and `late` form the middle field.
    """

    verb: Verb
    en: str = ""
    early: str = ""
    late: str = ""
    place: Both = ("", "")

    def english(self, verb: str) -> str:
        """The English predicate with this form of the verb."""
        return join(verb, self.en, self.place[0])

    def participle(self) -> str:
        """English: reading a book."""
        return self.english(english_participle(self.verb.en))

    def progressive(self, subject: Subject) -> str:
        """English: is reading a book."""
        return join("are" if subject.plural else "is", self.participle())

    def simple(self, subject: Subject) -> str:
        """English: reads a book."""
        return self.english(self.verb.en if subject.plural else english_third(self.verb.en))

    def second(self, subject: Subject, inverted: bool = False) -> str:
        """German main clause from its verb on: zieht einen Mantel an; inverted: zieht sie einen Mantel an."""
        return join(
            self.finite(subject),
            self.reflexive(),
            subject.de if inverted else "",
            self.middle(),
            self.verb.particle,
        )

    def final(self, subject: Subject) -> str:
        """German subordinate clause after its subject: einen Mantel anzieht."""
        return join(self.reflexive(), self.middle(), self.verb.particle + self.finite(subject))

    def infinitive(self, marker: str = "") -> str:
        """German infinitive clause: einen Mantel anziehen; with the marker zu: einen Mantel anzuziehen."""
        if marker and not self.verb.particle:
            marker += " "
        return join(self.reflexive(), self.middle(), self.verb.particle + marker + self.verb.infinitive)

    def finite(self, subject: Subject) -> str:
        """The German finite verb without its particle."""
        return self.verb.infinitive if subject.plural else self.verb.third

    def reflexive(self) -> str:
        """The German reflexive pronoun, if the verb has one."""
        return "sich" if self.verb.reflexive else ""

    def middle(self) -> str:
        """The German middle field, between the finite verb and the end of the clause."""
        return join(self.early, self.place[1], self.late)


def join(*parts: str) -> str:
    """Join the non-empty parts with blanks."""
    return " ".join(filter(None, parts))


def contract(preposition: str, phrase: str) -> str:
    """A German preposition before a phrase: in + dem Park = im Park."""
    article, _, rest = phrase.partition(" ")
    both = f"{preposition} {article}"
    return join(lexicon.CONTRACTIONS.get(both, both), rest)


def english_plural(noun: str) -> str:
    """The regular plural: boys, boxes, ladies."""
    if re.search(r"(s|x|ch|sh)$", noun):
        return noun + "es"
    return re.sub(r"(?<=[^aeiou])y$", "ie", noun) + "s"


@cache
def english_third(verb: str) -> str:
    """The third person of a verb, which may carry a particle: goes, puts on."""
    first, _, rest = verb.partition(" ")
    forms = {"have": "has", "go": "goes"}
    return join(forms.get(first) or english_plural(first), rest)


@cache
def english_participle(verb: str) -> str:
    """The -ing form of a verb, which may carry a particle: running, lying down."""
    first, _, rest = verb.partition(" ")
    if first.endswith("ie"):
        first = first[:-2] + "y"
    elif re.search(r"[^e]e$", first):
        first = first[:-1]
    elif re.fullmatch(r"([^aeiou]*|qu)[aeiou][^aeiouwxy]", first):
        first += first[-1]
    return join(first + "ing", rest)


def german_third(infinitive: str) -> str:
    """The third person of a verb whose vowel does not change: spielt, wartet, öffnet, lächelt."""
    stem = re.sub(r"(?<=e[lr])n$|en$", "", infinitive)
    return stem + ("et" if re.search(r"([dt]|ch[mn]|[^aeiouäöülrhmn][mn])$", stem) else "t")
