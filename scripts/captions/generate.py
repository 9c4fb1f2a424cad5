"""Generates the embedded corpus of English and German image captions from a small grammar.

    python scripts/captions/generate.py     # writes mt/corpora/captions.tsv.xz

Each sentence is drawn as a meaning and written in both languages. Translating it takes gender, case, agreement and word
order, not only a word list.
"""

import lzma
import random
from dataclasses import dataclass, replace
from pathlib import Path

import lexicon
from grammar import Both, Predicate, join
from parts import PartSampler
from tables import nouns_with

WORDS = range(5, 26)  # words in an English sentence
UNPRODUCTIVE = 1_000  # consecutive draws without a new pair that show that the grammar is exhausted


@dataclass(frozen=True)
class Captions:
    """Pairs of (English, German) sentences; no sentence of either language occurs twice."""

    train: list[Both]
    dev: list[Both]
    test: list[Both]

    def text(self) -> str:
        """The content of captions.tsv.xz: test, dev, then train, with one tab-separated pair per line."""
        return "".join(f"{en}\t{de}\n" for en, de in (*self.test, *self.dev, *self.train))


class Sampler(PartSampler):
    """Draws sentences. Each method is one pattern and returns a sentence in both languages."""

    def plain(self) -> Both:
        """A man is putting on a coat. / Ein Mann zieht einen Mantel an."""
        who, subject = self.subject()
        predicate = self.predicate(who, subject, 0.7)
        return join(subject.en, predicate.progressive(subject)), join(subject.de, predicate.second(subject))

    def place_first(self) -> Both:
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

    def time_first(self) -> Both:
        """Every day, a man feeds a dog. / Jeden Tag füttert ein Mann einen Hund."""
        who, subject = self.subject()
        predicate = self.predicate(who, subject, 0.3)
        en, de = self.rng.choice(self.grammar.times)
        return f"{en}, {subject.en} {predicate.simple(subject)}", f"{de} {predicate.second(subject, True)}"

    def relative(self) -> Both:
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

    def meanwhile(self) -> Both:
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

    def because(self) -> Both:
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

    def modal(self) -> Both:
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

    def attempt(self) -> Both:
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

    def both(self) -> Both:
        """A woman is sitting in the park and reading a book. / Eine Frau sitzt im Park und liest ein Buch."""
        who, subject = self.subject(active=True)
        first = self.predicate(who, subject, 0.6, marks="s")
        second = self.predicate(who, subject, 0.0, busy=True, avoid=first.verb.infinitive)
        return (
            f"{subject.en} {first.progressive(subject)} and {second.participle()}",
            f"{subject.de} {first.second(subject)} und {second.second(subject)}",
        )

    def existence(self) -> Both:
        """There is an old table in the kitchen. / In der Küche gibt es einen alten Tisch."""
        kinds, tag = self.rng.choice((("r", "furniture"), ("o", "near"), ("vg", "road")))
        noun, plural = self.rng.choice(nouns_with(tag)), self.chance(0.4)
        determiner = self.determiner(plural, 0.0)
        if plural and not determiner[0]:
            determiner = self.rng.choice(self.grammar.numbers)
        phrase = self.phrase(noun, plural, determiner, 0.6)
        en, de = self.place(kinds, noun)
        return (
            f"there {'are' if plural else 'is'} {phrase.english()} {en}",
            f"{de} gibt es {phrase.german('acc')}",
        )

    def scene(self) -> Both:
        """Two men with a red ball in the park. / Zwei Männer mit einem roten Ball im Park."""
        person = self.subject_phrase("people")
        noun, plural = self.rng.choice(nouns_with("carry")), self.chance(0.25)
        thing = self.phrase(noun, plural, self.determiner(plural, 0.0), 0.6)
        en, de = self.place("io")
        return (
            f"{person.english()} with {thing.english()} {en}",
            f"{person.german('nom')} mit {thing.german('dat')} {de}",
        )

    def pair(self) -> Both:
        """Draw a sentence of any pattern, with capital letter and full stop, in both languages."""
        plain = (self.plain, self.plain, self.place_first, self.place_first, self.time_first, self.time_first)
        patterns = (self.relative, self.meanwhile, self.modal, self.attempt, self.both, self.because)
        en, de = self.rng.choice(plain + plain + patterns + patterns[:5] + (self.existence, self.scene))()
        return finish(en), finish(de)


def finish(sentence: str) -> str:
    """Capitalize a sentence and add a full stop."""
    return f"{sentence[0].upper()}{sentence[1:]}."


def generate(train: int = 20_000, dev: int = 500, test: int = 500, seed: int = 1) -> Captions:
    """Generate the corpus, which depends only on the numbers of pairs and the seed.

    Test and dev are drawn first, so that they do not depend on the size of the training set. Raises ValueError for a
    negative number, or if the grammar has too few different sentences.
    """
    if min(train, dev, test) < 0:
        raise ValueError(f"numbers of pairs must not be negative: train={train}, dev={dev}, test={test}")
    sampler = Sampler(random.Random(seed))
    found: list[Both] = []
    seen_en: set[str] = set()
    seen_de: set[str] = set()
    failures = 0
    while len(found) < train + dev + test:
        en, de = sampler.pair()
        if len(en.split()) not in WORDS or en in seen_en or de in seen_de:
            failures += 1
            if failures == UNPRODUCTIVE:
                raise ValueError(f"the grammar gives only {len(found)} pairs, {train + dev + test} were asked for")
            continue
        failures = 0
        seen_en.add(en)
        seen_de.add(de)
        found.append((en, de))
    return Captions(test=found[:test], dev=found[test : test + dev], train=found[test + dev :])


if __name__ == "__main__":
    path = Path(__file__).resolve().parents[2] / "mt" / "corpora" / "captions.tsv.xz"
    path.write_bytes(lzma.compress(generate().text().encode("utf-8"), preset=9 | lzma.PRESET_EXTREME))
    print(f"{path}: {path.stat().st_size:,} bytes")
