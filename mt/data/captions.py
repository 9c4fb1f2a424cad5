"""The embedded corpus: a small grammar of English and German image captions.

It lets the whole pipeline run where there is no network. Each sentence is drawn as one meaning and written in
both languages, so translating it takes gender, case, agreement and word order, not only a word list.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from mt.data import captions_lexicon as lexicon

WORDS = range(5, 26)  # words in an English sentence
UNPRODUCTIVE = 1_000  # draws in a row without a new pair: the grammar is exhausted


@dataclass(frozen=True)
class Captions:
    """Pairs of (English, German) sentences; no sentence of either language stands in it twice."""

    train: list[tuple[str, str]]
    dev: list[tuple[str, str]]
    test: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Noun:
    """One noun in both languages; `adjectives` names its adjective class, `tags` what can be done with it."""

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
    """`de` stands alone (er ist müde), `stem` before an ending (ein müder Mann)."""

    en: str
    de: str
    stem: str


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb in both languages; `case` is its object's, `place` the kinds of places where it happens."""

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
    """A noun with the prepositions that it takes for being there and, in English, for going there."""

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
    determiner: tuple[str, str] = ("a", "ein")
    adjectives: tuple[Adjective, ...] = ()

    @property
    def gender(self) -> str:
        """The key of the German agreement: m, f, n or plural."""
        return "plural" if self.plural else self.noun.gender

    @property
    def definite(self) -> bool:
        """Whether it is known (the, his); such an object comes early in a German clause."""
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
        elif self.determiner in grammar().quantities:
            determiner = determiner.removesuffix("e") + lexicon.ENDINGS["strong"][case][column]
        ending = lexicon.ENDINGS[kind][case][column]
        return join(determiner, *(a.stem + ending for a in self.adjectives), self.german_noun(case))

    def german_noun(self, case: str) -> str:
        """The noun alone: plural, dative plural and weak forms."""
        if not self.plural:
            return self.noun.de_plural if self.noun.weak and case != "nom" else self.noun.de
        needs_n = case == "dat" and self.noun.de_plural[-1] not in "ns"
        return self.noun.de_plural + "n" * needs_n


@dataclass(frozen=True, slots=True)
class Subject:
    """Who it is about, ready in both languages."""

    en: str
    de: str
    plural: bool
    pronoun: str
    gender: str
    noun: Noun


@dataclass(frozen=True, slots=True)
class Predicate:
    """A verb and all that goes with it but the subject.

    `en`, then the place, follow the English verb; `early`, the place and `late` are the German middle field.
    """

    verb: Verb
    en: str = ""
    early: str = ""
    late: str = ""
    place: tuple[str, str] = ("", "")

    def english(self, verb: str) -> str:
        """With this form of the English verb."""
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
        """The German reflexive pronoun, where the verb has one."""
        return "sich" if self.verb.reflexive else ""

    def middle(self) -> str:
        """German: what stands between the finite verb and the end."""
        return join(self.early, self.place[1], self.late)


def join(*parts: str) -> str:
    """The parts that are not empty, with one blank between them."""
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


def entries(table: str) -> list[list[str]]:
    """The entries of a table, each as its fields; an underscore becomes a blank."""
    return [[field.replace("_", " ") for field in entry.split()] for entry in table.split(",")]


def pairs(table: str) -> list[tuple[str, str]]:
    """The entries of a table of two columns."""
    return [(en, de) for en, de in entries(table)]


def read_noun(fields: Sequence[str], key: str) -> Noun:
    """One entry of NOUNS under its key."""
    singular, _, plural = fields[0].partition("/")
    kind, *tags = key.split()
    pronoun = tags.pop(0) if tags[0] in lexicon.POSSESSIVES else "it"
    gender = fields[2]
    plural = plural or english_plural(singular)
    weak = gender == "mw"
    return Noun(singular, plural, fields[1], gender[0], fields[3], weak, pronoun, kind, frozenset(tags))


def read_verb(fields: Sequence[str], key: str = "||io|a") -> Verb:
    """One entry of VERBS under its key."""
    _, objects, place, how = key.split("|")
    rest = list(fields[1:])
    reflexive = rest[0] == "sich"
    particle, _, infinitive = rest[reflexive].rpartition("+")
    preposition, case, third = "", "acc", german_third(infinitive)
    for field in rest[reflexive + 1 :]:
        if ":" in field:
            preposition, case = field.split(":")
        elif field == "dat":
            case = field
        else:
            third = field
    what = frozenset(objects.split())
    return Verb(fields[0], infinitive, third, particle, reflexive, preposition, case, what, place, how)


def read_adjectives(table: dict[str, str]) -> dict[str, list[Adjective]]:
    """The adjectives of each class of nouns."""
    found: dict[str, list[Adjective]] = {}
    for key, words in table.items():
        for fields in entries(words):
            for kind in key.split():
                found.setdefault(kind, []).append(Adjective(fields[0], fields[1], fields[-1]))
    return found


class Grammar:
    """The lexicon, read into records once."""

    def __init__(self) -> None:
        self.nouns = [
            read_noun(fields, key) for key, words in lexicon.NOUNS.items() for fields in entries(words)
        ]
        self.adjectives = read_adjectives(lexicon.ADJECTIVES)
        self.colours = read_adjectives(lexicon.COLOURS)
        self.numbers, self.quantities = pairs(lexicon.NUMBERS), pairs(lexicon.QUANTITIES)
        self.near, self.times = pairs(lexicon.NEAR), pairs(lexicon.TIMES)
        self.adverbs = {how: pairs(words) for how, words in lexicon.ADVERBS.items()}
        self.modals = entries(lexicon.MODALS)
        self.motion = [read_verb(fields, "||-|a") for fields in entries(lexicon.MOTION)]
        self.attempts = [read_verb(fields) for fields in entries(lexicon.ATTEMPTS)]
        self.giving = {
            tag: [read_verb(f, f"|{tag}|io|w") for f in entries(words)]
            for tag, words in lexicon.GIVING.items()
        }
        self.places = [
            Place(
                Noun(en, "", de, gender, "", False, "it", "place", frozenset()), prep, towards, de_prep, kinds
            )
            for kinds, words in lexicon.PLACES.items()
            for prep, towards, en, de_prep, de, gender in entries(words)
        ]
        self.verbs: dict[str, list[Verb]] = {}
        for key, words in lexicon.VERBS.items():
            for who in key.split("|")[0].split():
                self.verbs.setdefault(who, []).extend(read_verb(fields, key) for fields in entries(words))
        self.reasons = {
            who: [
                (verb, (en, de))
                for key, words in lexicon.REASONS.items()
                for en, de in pairs(key)
                for verb in verbs
                if not verb.objects and [verb.en] in entries(words)
            ]
            for who, verbs in self.verbs.items()
        }

    @cache  # noqa: B019  (one instance for the life of the process)
    def nouns_with(self, tags: frozenset[str]) -> list[Noun]:
        """The nouns that carry any of the tags."""
        return [noun for noun in self.nouns if noun.tags & tags]

    @cache  # noqa: B019
    def places_of(self, kinds: str) -> list[Place]:
        """The places of any of the kinds."""
        return [place for place in self.places if set(place.kinds) & set(kinds)]


@cache
def grammar() -> Grammar:
    """The one grammar."""
    return Grammar()


THE, NO_ARTICLE, A = ("the", "der"), ("", ""), ("a", "ein")
UNOWNED = frozenset(["people", "wild", "near", "drink", "dish"])
VEHICLES, CARRIED = frozenset(["road"]), frozenset(["carry"])
LANDMARK, FURNITURE, PEOPLE = frozenset(["near"]), frozenset(["furniture"]), frozenset(["people"])


class Sampler:
    """Draws sentences; each method draws one part and gives it in both languages."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.grammar = grammar()

    def chance(self, share: float) -> bool:
        """True in this share of the draws."""
        return self.rng.random() < share

    def phrase(self, noun: Noun, plural: bool, determiner: tuple[str, str], modified: float) -> Phrase:
        """A noun phrase, with an adjective in the share `modified` of draws, and rarely with two."""
        if "mass" in noun.tags:
            plural, determiner = False, NO_ARTICLE
        plain, colours = (
            group.get(noun.adjectives, []) for group in (self.grammar.adjectives, self.grammar.colours)
        )
        found: tuple[Adjective, ...] = ()
        if self.chance(modified) or noun.adjectives == "hair":
            found = (self.rng.choice(plain + colours),)
            if colours and found[0] in plain and self.chance(0.15):
                found = (found[0], self.rng.choice(colours))
        return Phrase(noun, plural, determiner, found)

    def determiner(self, plural: bool, definite: float) -> tuple[str, str]:
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
        """Somebody (people, animal, wild) or a vehicle (road)."""
        plural = self.chance(0.3)
        noun = self.rng.choice(self.grammar.nouns_with(frozenset([who])))
        return self.phrase(noun, plural, self.determiner(plural, 0.25), modified)

    def subject(self, plain: bool = False, active: bool = False) -> tuple[str, Subject]:
        """Who acts, and its class; `plain` for one noun and no more, `active` for no vehicles."""
        draw = self.rng.random()
        who = (
            "people"
            if draw < 0.74
            else "animal"
            if draw < 0.9
            else "wild"
            if active or draw < 0.95
            else "road"
        )
        phrase = self.subject_phrase(who)
        en, de, plural, gender = phrase.english(), phrase.german("nom"), phrase.plural, phrase.gender
        pronoun = "they" if plural else phrase.noun.pronoun
        draw = self.rng.random() if who == "people" and not plain else 1.0
        if draw < 0.12:
            detail_en, detail_de = self.appearance(plural)
            en, de = join(en, detail_en), join(de, detail_de)
        elif draw < 0.22 and not plural:
            other = self.phrase(self.other(PEOPLE, phrase.noun), False, phrase.determiner, 0.3)
            en, de = f"{en} and {other.english()}", f"{de} und {other.german('nom')}"
            plural, pronoun, gender = True, "they", "plural"
        return who, Subject(en, de, plural, pronoun, gender, phrase.noun)

    def other(self, tags: frozenset[str], noun: Noun | None) -> Noun:
        """A noun with one of the tags, not the one given."""
        return self.rng.choice([found for found in self.grammar.nouns_with(tags) if found is not noun])

    def appearance(self, plural: bool) -> tuple[str, str]:
        """In a red coat, with long hair."""
        tag = self.rng.choice(("in", "in", "have", "hair"))
        noun = self.rng.choice(self.grammar.nouns_with(frozenset([tag])))
        phrase = self.phrase(noun, plural, NO_ARTICLE if plural else A, 0.6)
        en, de = ("in", "in") if tag == "in" else ("with", "mit")
        return f"{en} {phrase.english()}", f"{de} {phrase.german('dat')}"

    def place(self, kinds: str, avoid: Noun | None = None) -> tuple[str, str]:
        """Where: in the garden, behind an old house."""
        determiner = A if self.chance(0.3) else THE
        if set(kinds) & set("ov") and self.chance(0.3):
            en, de = self.rng.choice(self.grammar.near)
            phrase = self.phrase(self.other(LANDMARK, avoid), False, determiner, 0.3)
            return f"{en} {phrase.english()}", contract(de, phrase.german("dat"))
        place = self.rng.choice(self.grammar.places_of(kinds))
        phrase = self.phrase(place.noun, False, determiner, 0.25)
        return f"{place.en} {phrase.english()}", contract(place.de, phrase.german("dat"))

    def direction(self, kinds: str) -> tuple[str, str]:
        """Where to: into the garden."""
        place = self.rng.choice(self.grammar.places_of(kinds))
        phrase = self.phrase(place.noun, False, A if self.chance(0.3) else THE, 0.25)
        return f"{place.en_towards} {phrase.english()}", contract(place.de, phrase.german("acc"))

    def adverb(self, verb: Verb, plural: bool) -> tuple[str, str]:
        """How, where the verb can take it; mostly nothing."""
        if not self.chance(0.2) or not set(verb.how) & set("as") or "!" in verb.how:
            return NO_ARTICLE
        if not verb.objects and self.chance(0.3):
            return lexicon.TOGETHER if plural else lexicon.ALONE
        return self.rng.choice(self.grammar.adverbs["a" if "a" in verb.how and self.chance(0.6) else "s"])

    def object_phrase(self, verb: Verb, subject: Subject) -> Phrase:
        """What or whom it is done to."""
        noun = self.other(verb.objects, subject.noun)
        plural = subject.plural if "=" in verb.how else "1" not in verb.how and self.chance(0.25)
        determiner = self.determiner(plural, 0.25)
        if "people" in subject.noun.tags and self.chance(0.2) and not noun.tags & UNOWNED:
            determiner = (
                lexicon.POSSESSIVES[subject.pronoun],
                "sein" if subject.gender in ("m", "n") else "ihr",
            )
        elif "=" in verb.how and plural and determiner[1] not in ("", "der"):
            determiner = NO_ARTICLE
        return self.phrase(noun, plural, determiner, 0.3)

    def predicate(
        self, who: str, subject: Subject, located: float, marks: str = "", busy: bool = False, avoid: str = ""
    ) -> Predicate:
        """What the subject does, with a place in the share `located`.

        With `marks`, only a willing verb that has one of them; no verb whose infinitive is `avoid`;
        if `busy`, only a verb with an object that
        keeps the subject where it is.
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
        """A verb with its object, adverb and place. German: known object, adverb, place, new object."""
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
        """Going somewhere."""
        verb = self.rng.choice(self.grammar.motion)
        adverb = self.adverb(verb, subject.plural)
        towards = self.direction("io" if who == "people" else "o")
        return Predicate(verb, join(adverb[0], towards[0]), adverb[1], towards[1])

    def giving(self, subject: Subject) -> Predicate:
        """Giving a thing to somebody. German: the person, then the thing."""
        verb = self.rng.choice(self.grammar.giving["read" if self.chance(0.15) else "give"])
        thing, plural = self.object_phrase(verb, subject), self.chance(0.2)
        person = self.phrase(self.other(PEOPLE, subject.noun), plural, self.determiner(plural, 0.3), 0.3)
        english = f"{thing.english()} to {person.english()}"
        return Predicate(verb, english, person.german("dat"), thing.german("acc"))

    def plain(self) -> tuple[str, str]:
        """A man is putting on a coat. / Ein Mann zieht einen Mantel an."""
        who, subject = self.subject()
        predicate = self.predicate(who, subject, 0.7)
        return join(subject.en, predicate.progressive(subject)), join(subject.de, predicate.second(subject))

    def place_first(self) -> tuple[str, str]:
        """In the park, a man is sleeping. / Im Park schläft ein Mann."""
        who, subject = self.subject()
        predicate = self.predicate(who, subject, 1.0)
        while not predicate.place[0]:
            predicate = self.predicate(who, subject, 1.0)
        (en, de), predicate = predicate.place, replace(predicate, place=("", ""))
        return (
            f"{en}, {subject.en} {predicate.progressive(subject)}",
            f"{de} {predicate.second(subject, True)}",
        )

    def time_first(self) -> tuple[str, str]:
        """Every day, a man feeds a dog. / Jeden Tag füttert ein Mann einen Hund."""
        who, subject = self.subject()
        predicate = self.predicate(who, subject, 0.3)
        en, de = self.rng.choice(self.grammar.times)
        return f"{en}, {subject.en} {predicate.simple(subject)}", f"{de} {predicate.second(subject, True)}"

    def relative(self) -> tuple[str, str]:
        """A man who is reading a book is sitting. / Ein Mann, der ein Buch liest, sitzt."""
        who, subject = self.subject(plain=True, active=True)
        first = self.predicate(who, subject, 0.1, busy=True)
        second = self.predicate(who, subject, 0.6, marks="s", avoid=first.verb.infinitive)
        relative_en = "who" if who == "people" else "that"
        relative_de = lexicon.DEFINITE["nom"][lexicon.GENDERS.index(subject.gender)]
        return (
            f"{subject.en} {relative_en} {first.progressive(subject)} {second.progressive(subject)}",
            f"{subject.de}, {relative_de} {first.final(subject)}, {second.second(subject)}",
        )

    def meanwhile(self) -> tuple[str, str]:
        """A man is working while a dog is sleeping. / Ein Mann arbeitet, während ein Hund schläft."""
        who, subject = self.subject(plain=True, active=True)
        first = self.predicate(who, subject, 0.3)
        other_who, other = self.subject(plain=True, active=True)
        while other.noun is subject.noun:
            other_who, other = self.subject(plain=True, active=True)
        second = self.predicate(other_who, other, 0.3, avoid=first.verb.infinitive)
        return (
            f"{subject.en} {first.progressive(subject)} while {other.en} {second.progressive(other)}",
            f"{subject.de} {first.second(subject)}, während {other.de} {second.final(other)}",
        )

    def because(self) -> tuple[str, str]:
        """A man is crying because he is sad. / Ein Mann weint, weil er traurig ist."""
        who, subject = self.subject(plain=True, active=True)
        verb, (en, de) = self.rng.choice(self.grammar.reasons[who])
        predicate = self.acting(verb, subject, 0.5)
        pronoun = lexicon.PRONOUNS[subject.gender]
        are, sind = ("are", "sind") if subject.plural else ("is", "ist")
        return (
            f"{subject.en} {predicate.progressive(subject)} because {subject.pronoun} {are} {en}",
            f"{subject.de} {predicate.second(subject)}, weil {pronoun} {de} {sind}",
        )

    def modal(self) -> tuple[str, str]:
        """A boy wants to sleep in the park. / Ein Junge will im Park schlafen."""
        who, subject = self.subject(active=True)
        predicate = self.predicate(who, subject, 0.4, marks="asw")
        en, third, plural = self.rng.choice(self.grammar.modals)
        if en == "want to" and not subject.plural:
            en = "wants to"
        return (
            f"{subject.en} {en} {predicate.english(predicate.verb.en)}",
            f"{subject.de} {plural if subject.plural else third} {predicate.infinitive()}",
        )

    def attempt(self) -> tuple[str, str]:
        """A man is trying to stand up. / Ein Mann versucht, aufzustehen."""
        who, subject = self.subject(active=True)
        while who != "people":
            who, subject = self.subject(active=True)
        predicate = self.predicate(who, subject, 0.3, marks="aw")
        trying = Predicate(self.rng.choice(self.grammar.attempts))
        return (
            f"{subject.en} {trying.progressive(subject)} to {predicate.english(predicate.verb.en)}",
            f"{subject.de} {trying.second(subject)}, {predicate.infinitive('zu')}",
        )

    def both(self) -> tuple[str, str]:
        """A woman is sitting in the park and reading a book. / Eine Frau sitzt im Park und liest ein Buch."""
        who, subject = self.subject(active=True)
        first = self.predicate(who, subject, 0.6, marks="s")
        second = self.predicate(who, subject, 0.0, busy=True, avoid=first.verb.infinitive)
        return (
            f"{subject.en} {first.progressive(subject)} and {second.participle()}",
            f"{subject.de} {first.second(subject)} und {second.second(subject)}",
        )

    def existence(self) -> tuple[str, str]:
        """There is an old table in the kitchen. / In der Küche gibt es einen alten Tisch."""
        kinds, tags = self.rng.choice((("r", FURNITURE), ("o", LANDMARK), ("vg", VEHICLES)))
        noun, plural = self.rng.choice(self.grammar.nouns_with(tags)), self.chance(0.4)
        determiner = self.determiner(plural, 0.0)
        if plural and not determiner[0]:
            determiner = self.rng.choice(self.grammar.numbers)
        phrase = self.phrase(noun, plural, determiner, 0.6)
        en, de = self.place(kinds, noun)
        return (
            f"there {'are' if plural else 'is'} {phrase.english()} {en}",
            f"{de} gibt es {phrase.german('acc')}",
        )

    def scene(self) -> tuple[str, str]:
        """Two men with a red ball in the park. / Zwei Männer mit einem roten Ball im Park."""
        person = self.subject_phrase("people")
        noun, plural = self.rng.choice(self.grammar.nouns_with(CARRIED)), self.chance(0.25)
        thing = self.phrase(noun, plural, self.determiner(plural, 0.0), 0.6)
        en, de = self.place("io")
        return (
            f"{person.english()} with {thing.english()} {en}",
            f"{person.german('nom')} mit {thing.german('dat')} {de}",
        )

    def pair(self) -> tuple[str, str]:
        """One sentence, finished in both languages."""
        plain = (self.plain, self.plain, self.place_first, self.place_first, self.time_first, self.time_first)
        patterns = (self.relative, self.meanwhile, self.modal, self.attempt, self.both, self.because)
        en, de = self.rng.choice(plain + plain + patterns + patterns[:5] + (self.existence, self.scene))()
        return finish(en), finish(de)


def finish(sentence: str) -> str:
    """A capital letter first, a full stop last."""
    return f"{sentence[0].upper()}{sentence[1:]}."


def generate(train: int = 20_000, dev: int = 500, test: int = 500, seed: int = 1) -> Captions:
    """The corpus: a pure function of the numbers of pairs and the seed.

    Test and dev come first, so that they stay the same whatever the size of the training set. Raises
    ValueError for a negative number, or where the grammar cannot give so many different sentences.
    """
    if min(train, dev, test) < 0:
        raise ValueError(f"numbers of pairs must not be negative: train={train}, dev={dev}, test={test}")
    sampler = Sampler(random.Random(seed))
    found: list[tuple[str, str]] = []
    seen_en: set[str] = set()
    seen_de: set[str] = set()
    failures = 0
    while len(found) < train + dev + test:
        en, de = sampler.pair()
        if len(en.split()) not in WORDS or en in seen_en or de in seen_de:
            failures += 1
            if failures == UNPRODUCTIVE:
                raise ValueError(
                    f"the grammar gives only {len(found)} pairs, {train + dev + test} were asked for"
                )
            continue
        failures = 0
        seen_en.add(en)
        seen_de.add(de)
        found.append((en, de))
    return Captions(test=found[:test], dev=found[test : test + dev], train=found[test + dev :])
