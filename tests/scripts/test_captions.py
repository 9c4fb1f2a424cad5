"""The generator of the captions: the split, the grammar of both languages, and the generated text."""

import lzma
import random
import re
import sys
from collections import Counter
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "captions"


@pytest.fixture(scope="module", autouse=True)
def scripts():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        yield
    for name in ("generate", "grammar", "lexicon", "parts", "tables"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def corpus(scripts):
    from generate import generate

    return generate()


def noun(en):
    from tables import grammar

    return next(noun for noun in grammar().nouns if noun.en == en)


def adjective(en):
    from tables import grammar

    tables = (*grammar().adjectives.values(), *grammar().colours.values())
    return next(found for table in tables for found in table if found.en == en)


def verb(en, **traits):
    from tables import grammar

    verbs = (found for table in grammar().verbs.values() for found in table)
    verbs = [
        *verbs,
        *grammar().motion,
        *grammar().attempts,
        *(v for t in grammar().giving.values() for v in t),
    ]
    return next(found for found in verbs if found.en == en and all(getattr(found, k) == v for k, v in traits.items()))


def subject(en, plural=False, determiner=("a", "ein")):
    from grammar import Phrase, Subject

    phrase = Phrase(noun(en), plural, determiner)
    pronoun = "they" if plural else noun(en).pronoun
    return Subject(phrase.english(), phrase.german("nom"), plural, pronoun, phrase.gender, noun(en))


# ------------------------------------------------------------------ the split


def test_sizes_and_disjointness(corpus):
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (20_000, 500, 500)
    for side in (0, 1):
        sentences = [pair[side] for pair in corpus.train + corpus.dev + corpus.test]
        assert len(set(sentences)) == 21_000


def test_the_text_of_the_package_is_what_the_generator_makes(corpus):
    packed = files("mt.corpora").joinpath("captions.tsv.xz").read_bytes()
    assert lzma.decompress(packed) == corpus.text().encode("utf-8")


def test_same_seed_same_corpus_whatever_the_global_random_state():
    from generate import generate

    random.seed(5)
    state = random.getstate()
    first = generate(200, 20, 20, seed=3)
    assert random.getstate() == state
    random.seed(6)
    assert generate(200, 20, 20, seed=3) == first
    assert generate(200, 20, 20, seed=4) != first


def test_test_set_does_not_depend_on_the_training_size():
    from generate import generate

    small, large = generate(10, 20, 20), generate(300, 20, 20)
    assert (small.test, small.dev) == (large.test, large.dev)
    assert large.train[:10] == small.train


def test_zero_pairs_and_impossible_numbers(monkeypatch):
    from generate import Captions, Sampler, generate

    assert generate(0, 0, 0) == Captions([], [], [])
    with pytest.raises(ValueError, match="negative"):
        generate(train=-1)
    monkeypatch.setattr(Sampler, "pair", lambda self: ("A man is sleeping here.", "Ein Mann schläft hier."))
    with pytest.raises(ValueError, match="only 1 pairs"):
        generate(2, 0, 0)


def test_one_sentence_has_one_translation_in_both_directions():
    from generate import Sampler

    sampler, german, english = Sampler(random.Random(11)), {}, {}
    for _ in range(5_000):
        en, de = sampler.pair()
        assert german.setdefault(en, de) == de
        assert english.setdefault(de, en) == en


# ------------------------------------------------------------------ agreement, compared with forms written by hand

# Each block: nominative, accusative, dative of masculine, feminine, neuter and plural.
ENDINGS = {
    ("the", False): """der alte Hund     | den alten Hund    | dem alten Hund
                       die alte Kuh      | die alte Kuh      | der alten Kuh
                       das alte Pferd    | das alte Pferd    | dem alten Pferd""",
    ("a", False): """ein alter Hund      | einen alten Hund  | einem alten Hund
                     eine alte Kuh       | eine alte Kuh     | einer alten Kuh
                     ein altes Pferd     | ein altes Pferd   | einem alten Pferd""",
    ("his", False): """sein alter Hund   | seinen alten Hund | seinem alten Hund
                       seine alte Kuh    | seine alte Kuh    | seiner alten Kuh
                       sein altes Pferd  | sein altes Pferd  | seinem alten Pferd""",
    ("their", False): """ihr alter Hund   | ihren alten Hund | ihrem alten Hund
                         ihre alte Kuh    | ihre alte Kuh    | ihrer alten Kuh
                         ihr altes Pferd  | ihr altes Pferd  | ihrem alten Pferd""",
    ("", False): """alter Hund           | alten Hund        | altem Hund
                    alte Kuh             | alte Kuh          | alter Kuh
                    altes Pferd          | altes Pferd       | altem Pferd""",
    ("the", True): """die alten Hunde    | die alten Hunde   | den alten Hunden
                      die alten Kühe     | die alten Kühe    | den alten Kühen
                      die alten Pferde   | die alten Pferde  | den alten Pferden""",
    ("", True): """alte Hunde            | alte Hunde        | alten Hunden
                   alte Kühe             | alte Kühe         | alten Kühen
                   alte Pferde           | alte Pferde       | alten Pferden""",
    ("two", True): """zwei alte Hunde    | zwei alte Hunde   | zwei alten Hunden
                      zwei alte Kühe     | zwei alte Kühe    | zwei alten Kühen
                      zwei alte Pferde   | zwei alte Pferde  | zwei alten Pferden""",
    ("many", True): """viele alte Hunde  | viele alte Hunde  | vielen alten Hunden
                       viele alte Kühe   | viele alte Kühe   | vielen alten Kühen
                       viele alte Pferde | viele alte Pferde | vielen alten Pferden""",
    ("his", True): """seine alten Hunde  | seine alten Hunde  | seinen alten Hunden
                      seine alten Kühe   | seine alten Kühe   | seinen alten Kühen
                      seine alten Pferde | seine alten Pferde | seinen alten Pferden""",
}
DETERMINERS = {
    "the": "der",
    "a": "ein",
    "his": "sein",
    "their": "ihr",
    "": "",
    "two": "zwei",
    "many": "viele",
}


@pytest.mark.parametrize("key", ENDINGS, ids=str)
def test_noun_phrases_of_all_genders_and_cases(key):
    from grammar import Phrase

    determiner, plural = key
    for en, line in zip(("dog", "cow", "horse"), ENDINGS[key].splitlines(), strict=True):
        phrase = Phrase(noun(en), plural, (determiner, DETERMINERS[determiner]), (adjective("old"),))
        found = [phrase.german(case) for case in ("nom", "acc", "dat")]
        assert found == [form.strip() for form in line.split("|")]
        article = "an" if determiner == "a" else determiner
        assert phrase.english() == f"{article} old {en}{'s' * plural}".strip()


@pytest.mark.parametrize(
    ("en", "singular", "plural"),
    [
        ("boy", "der Junge, den Jungen, dem Jungen", "die Jungen, die Jungen, den Jungen"),
        ("bear", "der Bär, den Bären, dem Bären", "die Bären, die Bären, den Bären"),
        ("farmer", "der Bauer, den Bauern, dem Bauern", "die Bauern, die Bauern, den Bauern"),
        ("neighbour", "der Nachbar, den Nachbarn, dem Nachbarn", "die Nachbarn, die Nachbarn, den Nachbarn"),
        ("teacher", "der Lehrer, den Lehrer, dem Lehrer", "die Lehrer, die Lehrer, den Lehrern"),
        ("girl", "das Mädchen, das Mädchen, dem Mädchen", "die Mädchen, die Mädchen, den Mädchen"),
        ("child", "das Kind, das Kind, dem Kind", "die Kinder, die Kinder, den Kindern"),
        ("car", "das Auto, das Auto, dem Auto", "die Autos, die Autos, den Autos"),
        ("queen", "die Königin, die Königin, der Königin", "die Königinnen, die Königinnen, den Königinnen"),
        ("apple", "der Apfel, den Apfel, dem Apfel", "die Äpfel, die Äpfel, den Äpfeln"),
    ],
)
def test_weak_nouns_and_dative_plurals(en, singular, plural):
    from grammar import THE, Phrase

    for number, expected in ((False, singular), (True, plural)):
        assert ", ".join(Phrase(noun(en), number, THE).german(case) for case in ("nom", "acc", "dat")) == expected


def test_adjectives_whose_stem_changes():
    from grammar import NO_ARTICLE, THE, A, Phrase

    phrase = Phrase(noun("coat"), False, A, (adjective("expensive"), adjective("black")))
    assert phrase.german("acc") == "einen teuren schwarzen Mantel"
    assert Phrase(noun("tower"), False, THE, (adjective("high"),)).german("dat") == "dem hohen Turm"
    assert Phrase(noun("boy"), False, A, (adjective("tired"),)).german("nom") == "ein müder Junge"
    assert Phrase(noun("lemon"), True, NO_ARTICLE, (adjective("sour"),)).german("acc") == "saure Zitronen"


def test_english_articles_plurals_and_verb_forms():
    from grammar import Phrase, english_participle, english_third
    from tables import grammar

    for expected in ("an apple", "an umbrella", "a uniform", "an egg", "a hat"):
        en = expected.split()[1]
        assert Phrase(noun(en)).english() == expected
    plurals = "women children geese wolves knives cherries buses tomatoes fairy_tales dresses benches monkeys"
    assert set(plurals.replace("_", "~").split()) <= {n.en_plural.replace(" ", "~") for n in grammar().nouns}
    participles = """run running, lie down lying down, put on putting on, take off taking off, sit sitting,
        carry carrying, jump jumping, get into getting into, swim swimming, pet petting, open opening,
        look at looking at, cry crying, tidy up tidying up, visit visiting, sew sewing, offer offering"""
    for entry in participles.split(","):
        words = entry.split()
        base, form = words[: len(words) // 2], words[len(words) // 2 :]
        assert english_participle(" ".join(base)) == " ".join(form)
    thirds = {
        "carry": "carries",
        "wash": "washes",
        "have breakfast": "has breakfast",
        "go shopping": "goes shopping",
    }
    thirds |= {"play": "plays", "lie down": "lies down", "dress": "dresses", "fix": "fixes", "cry": "cries"}
    assert {base: english_third(base) for base in thirds} == thirds


def test_german_third_person_of_regular_verbs():
    from grammar import german_third

    forms = """spielen spielt, warten wartet, öffnen öffnet, zeichnen zeichnet, lächeln lächelt,
        klettern klettert, lehnen lehnt, baden badet, umarmen umarmt, küssen küsst, schließen schließt,
        reparieren repariert, feiern feiert, schwimmen schwimmt, rennen rennt, kümmern kümmert"""
    for entry in forms.split(","):
        infinitive, third = entry.split()
        assert german_third(infinitive) == third


def test_verbs_whose_vowel_changes_say_so():
    from grammar import german_third
    from tables import grammar

    strong = """schlafen schläft, laufen läuft, fallen fällt, sehen sieht, halten hält, fahren fährt,
        lesen liest, essen isst, waschen wäscht, tragen trägt, werfen wirft, geben gibt, helfen hilft,
        laden lädt"""
    expected = dict(entry.split() for entry in strong.split(","))
    verbs = [found for table in grammar().verbs.values() for found in table]
    verbs += [found for table in grammar().giving.values() for found in table]
    changed = {v.infinitive: v.third for v in verbs if v.third != german_third(v.infinitive)}
    assert changed == expected


def test_contractions():
    from grammar import contract

    pairs = {
        ("in", "dem Park"): "im Park",
        ("an", "dem Strand"): "am Strand",
        ("von", "dem Arzt"): "vom Arzt",
    }
    pairs |= {
        ("bei", "dem Haus"): "beim Haus",
        ("in", "das Café"): "ins Café",
        ("auf", "das Feld"): "auf das Feld",
    }
    pairs |= {
        ("in", "der Küche"): "in der Küche",
        ("in", "den Park"): "in den Park",
        ("mit", "Hunden"): "mit Hunden",
    }
    assert {key: contract(*key) for key in pairs} == pairs


# ------------------------------------------------------------------ word order


def test_separable_verb_in_every_position():
    from grammar import Phrase, Predicate

    man, coat = subject("man"), Phrase(noun("coat"))
    predicate = Predicate(verb("put on"), coat.english(), late=coat.german("acc"), place=("in the hotel", "im Hotel"))
    assert predicate.progressive(man) == "is putting on a coat in the hotel"
    assert predicate.simple(man) == "puts on a coat in the hotel"
    assert predicate.second(man) == "zieht im Hotel einen Mantel an"
    assert predicate.second(man, inverted=True) == "zieht ein Mann im Hotel einen Mantel an"
    assert predicate.final(man) == "im Hotel einen Mantel anzieht"
    assert predicate.infinitive() == "im Hotel einen Mantel anziehen"
    assert predicate.infinitive("zu") == "im Hotel einen Mantel anzuziehen"


def test_reflexive_verb_in_every_position():
    from grammar import Predicate

    women = subject("woman", True, ("two", "zwei"))
    predicate = Predicate(verb("rest"))
    assert predicate.progressive(women) == "are resting"
    assert predicate.second(women) == "ruhen sich aus"
    assert predicate.second(women, inverted=True) == "ruhen sich zwei Frauen aus"
    assert predicate.final(women) == "sich ausruhen"
    assert predicate.infinitive("zu") == "sich auszuruhen"
    assert Predicate(verb("sleep")).infinitive("zu") == "zu schlafen"


class Never(random.Random):
    """A random source with which `chance` is always false."""

    def random(self):
        return 0.99


def test_objects_take_the_case_of_their_verb(monkeypatch):
    from generate import Sampler
    from grammar import A, Phrase

    sampler, man = Sampler(Never()), subject("man")
    boy = Phrase(noun("boy"), False, A)
    expected = {
        "help": "hilft einem Jungen", "hug": "umarmt einen Jungen", "wait for": "wartet auf einen Jungen",
        "listen to": "hört einem Jungen zu", "dance with": "tanzt mit einem Jungen",
        "take care of": "kümmert sich um einen Jungen", "dream of": "träumt von einem Jungen",
    }  # fmt: skip
    monkeypatch.setattr(Sampler, "object_phrase", lambda self, verb, subject: boy)
    for en, german in expected.items():
        assert sampler.acting(verb(en), man, 0.0).second(man) == german


def test_a_known_object_comes_before_the_place_and_a_new_one_after(monkeypatch):
    from generate import Sampler
    from grammar import THE, A, Phrase

    sampler, man = Sampler(Never()), subject("man")
    monkeypatch.setattr(Sampler, "place", lambda self, kinds, avoid: ("in the park", "im Park"))
    for determiner, german in ((A, "trägt im Park einen Ball"), (THE, "trägt den Ball im Park")):
        ball = Phrase(noun("ball"), False, determiner)
        monkeypatch.setattr(Sampler, "object_phrase", lambda self, verb, subject, ball=ball: ball)
        assert sampler.acting(verb("carry"), man, 1.0).second(man) == german


# {pattern: (regex that selects English sentences, regex that their German must match)}
PATTERNS = {
    "separable verb": (r"^(?!.*(who|while|because)).* is putting on", r" zieht .* an\.$"),
    "subordinate clause": (r" while .* is sleeping\.", r", während .* schläft\.$"),
    "relative clause": (r"^(An?|The) \w+ who is eating", r"^\w+ \w+, (der|die|das) .* isst, "),
    "infinitive clause": (r"is trying to", r" versucht, .*zu"),
    "separable infinitive clause": (r"(trying|starting) to (put|throw) away", r" weg(zuräumen|zuwerfen)\.$"),
    "modal": (r"^The \w+ wants to", r" will .*n\.$"),
    "place first": (r"^In the park, ", r"^Im Park "),
    "time first": (r"^Every day, an? ", r"^Jeden Tag \w+ (sich )?eine? "),
    "existence": (r"^There is an? ", r" gibt es ein"),
    "reason": (r"because she is happy", r", weil (sie|es) glücklich ist\.$"),
    "direction": (r"into the park", r" in den Park"),
    "dative": (r"is (helping|thanking) an? \w+\.$", r"(einem|einer) \w+( hilft| dankt)?\.$"),
    "possessive": (r"^The \w+ is \w+ her ", r" (ihr|sein)"),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_each_pattern_occurs_and_is_built_alike_in_both_languages(corpus, name):
    en, de = PATTERNS[name]
    found = [german for english, german in corpus.train if re.search(en, english)]
    assert len(found) >= 5
    assert [german for german in found if not re.search(de, german)] == []


# ------------------------------------------------------------------ the lexicon and the text


def test_every_entry_occurs_often(corpus):
    from grammar import english_participle, english_third
    from tables import grammar

    grams: Counter[str] = Counter()
    for en, _ in corpus.train:
        words = re.findall(r"[a-zé]+", en.lower())
        grams.update(" ".join(words[i : i + n]) for n in (1, 2, 3) for i in range(len(words) - n + 1))
    g = grammar()
    verbs = {v.en for table in g.verbs.values() for v in table} | {v.en for v in g.motion + g.attempts}
    entries = {n.en: {n.en, n.en_plural} for n in g.nouns} | {p.noun.en: {p.noun.en} for p in g.places}
    entries |= {en: {en, english_third(en), english_participle(en)} for en in verbs}
    entries |= {a.en: {a.en} for table in (g.adjectives, g.colours) for group in table.values() for a in group}
    entries |= {en: {en} for en, _ in g.numbers + g.quantities + g.near + g.adverbs["a"] + g.adverbs["s"]}
    entries |= {en: {en.lower()} for en, _ in g.times} | {m[0]: {m[0]} for m in g.modals if m[0] != "want to"}
    counts = {entry: sum(grams[form] for form in forms) for entry, forms in entries.items()}
    assert len(counts) > 400
    assert min(counts.values()) >= 20, sorted(counts.items(), key=lambda item: item[1])[:5]


def test_entries_are_well_formed():
    from tables import grammar

    g = grammar()
    for found in g.nouns:
        assert found.gender in ("m", "f", "n") and re.fullmatch("[A-ZÄÖÜ][a-zäöüß]+", found.de)
        assert re.fullmatch("[a-z -]+", found.en) and found.pronoun in ("he", "she", "it")
        assert found.de_plural == "-" if "mass" in found.tags else found.de_plural[0].isupper()
        assert not found.weak or found.de_plural.endswith("n")
        assert found.adjectives in g.adjectives
    for place in g.places:
        assert place.de in ("in", "an", "auf") and place.noun.gender in ("m", "f", "n")
        assert place.noun.de[0].isupper()
    for found in [found for table in g.verbs.values() for found in table]:
        assert re.fullmatch("[a-zäöüß]+n", found.infinitive) and found.third.endswith("t")
        assert found.case in ("acc", "dat") and (found.how[0] in "asw-")


def test_no_word_has_two_translations():
    from tables import grammar

    g = grammar()
    nouns = {(n.en, n.de) for n in g.nouns} | {(p.noun.en, p.noun.de) for p in g.places}
    adjectives = {(a.en, a.de) for t in (g.adjectives, g.colours) for group in t.values() for a in group}
    verbs = {
        (v.en, v.reflexive, v.particle + v.infinitive, v.preposition)
        for table in g.verbs.values()
        for v in table
        if not (v.en == "play" and v.objects)  # an instrument: spielen auf
    }
    for table in (nouns, adjectives, verbs):
        assert len({row[0] for row in table}) == len({row[1:] for row in table}) == len(table)


def test_text_is_clean(corpus):
    for en, de in corpus.train + corpus.dev + corpus.test:
        assert 5 <= len(en.split()) <= 25
        for sentence in (en, de):
            assert sentence.endswith(".") and sentence[0].isupper()
            assert re.fullmatch(r"[\w'-]+(,? [\w'-]+)*\.", sentence), sentence
            doubled = [left for left, right in pairwise(sentence.split()) if left == right]
            assert set(doubled) <= {"die", "das", "der"}  # ..., die die Jacken waschen
        assert not re.search(r"\b(in|an|von|bei) dem\b|\bin das\b", de), de
        assert not re.search(r"\b[Aa] [aeio]|\b[Aa]n [^aeiou]", en), en


def test_test_set_needs_no_unknown_word(corpus):
    known = {word for pair in corpus.train for sentence in pair for word in re.findall(r"\w+", sentence)}
    unseen = [pair for pair in corpus.test if not set(re.findall(r"\w+", " ".join(pair))) <= known]
    assert len(unseen) <= 10


def test_places_keep_their_contraction_and_case(corpus):
    text = " ".join(de for _, de in corpus.train)
    for form in (
        "im Park",
        "am Strand",
        "auf dem Feld",
        "auf das Feld",
        "ins Café",
        "in den Wald",
        "auf die Straße",
    ):
        assert form in text
