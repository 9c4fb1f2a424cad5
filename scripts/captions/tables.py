"""Reads the tables of the embedded corpus's lexicon into records."""

from collections.abc import Sequence
from functools import cache

import lexicon
from grammar import Adjective, Both, Noun, Place, Verb, english_plural, german_third


def entries(table: str) -> list[list[str]]:
    """Split a table into entries and their fields; an underscore becomes a blank."""
    return [[field.replace("_", " ") for field in entry.split()] for entry in table.split(",")]


def pairs(table: str) -> list[Both]:
    """The entries of a table with two columns."""
    return [(en, de) for en, de in entries(table)]


def read_noun(fields: Sequence[str], key: str) -> Noun:
    """Read one entry of NOUNS and its key."""
    singular, _, plural = fields[0].partition("/")
    kind, *tags = key.split()
    pronoun = tags.pop(0) if tags[0] in lexicon.POSSESSIVES else "it"
    plural = plural or english_plural(singular)
    _, de, gender, de_plural = fields
    return Noun(singular, plural, de, gender[0], de_plural, gender == "mw", pronoun, kind, frozenset(tags))


def read_verb(fields: Sequence[str], key: str = "||io|a") -> Verb:
    """Read one entry of VERBS and its key."""
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
    """All records of the lexicon."""

    def __init__(self) -> None:
        self.nouns = [read_noun(fields, key) for key, words in lexicon.NOUNS.items() for fields in entries(words)]
        self.adjectives = read_adjectives(lexicon.ADJECTIVES)
        self.colours = read_adjectives(lexicon.COLOURS)
        self.numbers, self.quantities = pairs(lexicon.NUMBERS), pairs(lexicon.QUANTITIES)
        self.near, self.times = pairs(lexicon.NEAR), pairs(lexicon.TIMES)
        self.adverbs = {how: pairs(words) for how, words in lexicon.ADVERBS.items()}
        self.modals = entries(lexicon.MODALS)
        self.motion = [read_verb(fields, "||-|a") for fields in entries(lexicon.MOTION)]
        self.attempts = [read_verb(fields) for fields in entries(lexicon.ATTEMPTS)]
        self.giving = {
            tag: [read_verb(f, f"|{tag}|io|w") for f in entries(words)] for tag, words in lexicon.GIVING.items()
        }
        self.places = [
            Place(Noun(en, "", de, gender, "", False, "it", "place", frozenset()), prep, towards, de_prep, kinds)
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


@cache
def grammar() -> Grammar:
    """The grammar, which is read only once."""
    return Grammar()


@cache
def nouns_with(*tags: str) -> list[Noun]:
    """The grammar's nouns that carry any of the tags."""
    return [noun for noun in grammar().nouns if not noun.tags.isdisjoint(tags)]


@cache
def places_of(kinds: str) -> list[Place]:
    """The grammar's places of any of the kinds."""
    return [place for place in grammar().places if set(place.kinds) & set(kinds)]
