import gzip
import json
import logging
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from mt.errors import UserError
from mt.evaluation import metrics
from mt.evaluation.metrics import Scores, bleu, bleu_metric, published_form, score, table

REFERENCES = [
    "Ein Mann fährt auf einem roten Fahrrad durch die Stadt.",
    "Zwei Hunde spielen (laut) im tiefen Schnee.",
    "Eine Frau sagt: „Guten Morgen, Herr Müller!“",
    "Das Kind isst 3,5 Äpfel & eine Birne.",
    "Drei Leute stehen vor einem Geschäft.",
]
HYPOTHESES = [
    "Ein Mann fährt mit einem roten Fahrrad durch die Stadt.",
    "Zwei Hunde spielen im Schnee.",
    "Eine Frau sagt: „Guten Morgen, Herr Meier!“",
    "Das Kind isst 3,5 Äpfel und eine Birne.",
    "",
]


def command_line(tmp_path: Path, hypotheses: list[str], references: list[str], *options: str) -> list[str]:
    """The output of the `sacrebleu` program for the two sides, without a home folder or network."""
    for name, lines in (("hyp", hypotheses), ("ref", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    environment = {**os.environ, "HOME": "/nonexistent", "https_proxy": "http://127.0.0.1:9"}
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(tmp_path / "ref"),
        "-i",
        str(tmp_path / "hyp"),
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.split("\n")


def test_equals_the_sacrebleu_command(tmp_path: Path) -> None:
    ours = score(HYPOTHESES, REFERENCES, "de")
    printed = command_line(tmp_path, HYPOTHESES, REFERENCES, "-m", "bleu", "chrf", "ter", "-f", "text", "-w", "9")
    for line, value, signature in zip(
        printed[:3],
        (ours.sacrebleu, ours.chrf, ours.ter),
        (ours.signature, ours.chrf_signature, ours.ter_signature),
        strict=True,
    ):
        name, _, rest = line.partition(" = ")
        assert name.partition("|")[2] == signature
        assert float(rest.split()[0]) == pytest.approx(value, abs=1e-6)
    assert bleu(HYPOTHESES, REFERENCES, "de") == ours.sacrebleu
    assert "case:mixed" in ours.signature and "tok:13a" in ours.signature


def test_scores_without_home_or_network() -> None:
    program = "from mt.evaluation.metrics import score; print(score(['a b c d e'], ['a b c d e'], 'cs').sacrebleu)"
    environment = {"PATH": os.defpath, "HOME": "/nonexistent", "https_proxy": "http://127.0.0.1:9"}
    root = Path(metrics.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == pytest.approx(100.0)
    assert done.stderr == ""


def test_one_right_sentence_is_not_a_perfect_score() -> None:
    hypotheses = [REFERENCES[0], "x y z w", "x y z w", "x y z w", "x y z w"]
    assert 5 < score(hypotheses, REFERENCES, "de").sacrebleu < 60


def test_exchanged_sides_give_another_score() -> None:
    assert abs(bleu(HYPOTHESES, REFERENCES, "de") - bleu(REFERENCES, HYPOTHESES, "de")) > 1


def test_interval_is_sacrebleus_bootstrap() -> None:
    generator = random.Random(1)
    references = [" ".join(generator.choices("abcdef", k=generator.randint(4, 12))) for _ in range(53)]
    hypotheses = [line.replace("a b", "b a") for line in references]
    theirs = BLEU().corpus_score(hypotheses, [references], n_bootstrap=1000)
    state = np.random.get_state()[1].tolist()
    ours = score(hypotheses, references, "en")
    assert np.random.get_state()[1].tolist() == state
    assert ours.interval is not None
    low, high = ours.interval
    assert low < ours.sacrebleu < high
    assert (high - low) / 2 == pytest.approx(theirs._ci, abs=1e-3)  # sacreBLEU sums in float32
    assert score(hypotheses, references, "en").interval == ours.interval


def test_interval_smooths_where_four_grams_are_missing() -> None:
    hypotheses, references = ["a b c d e", "x b y d", "a z c w e"], ["a b c d e", "a b c d", "a b c d e"]
    theirs = BLEU().corpus_score(hypotheses, [references], n_bootstrap=1000)
    low, high = score(hypotheses, references, "en").interval or (0, 0)
    assert 0 < low < 20 and (high - low) / 2 == pytest.approx(theirs._ci, abs=1e-3)


def test_tiny_sets() -> None:
    perfect = score(["a black cat sleeps"], ["a black cat sleeps"], "en")
    assert perfect.sacrebleu == pytest.approx(100) and perfect.ter == 0 and perfect.interval is None
    assert perfect.compatible == pytest.approx(100) and perfect.chrf == pytest.approx(100)
    nothing = score(["", ""], ["one two three four", "five"], "en")
    assert nothing.sacrebleu == nothing.compatible == nothing.chrf == 0
    assert nothing.ter == 100 and nothing.interval == (0, 0)
    assert score(["", ""], ["", ""], "en").sacrebleu == 0


@pytest.mark.parametrize("function", [score, bleu])
def test_wrong_counts_are_refused(function) -> None:
    with pytest.raises(UserError, match=r"2 hypotheses but 3 references.*"):
        function(["a", "b"], ["a", "b", "c"], "de")
    with pytest.raises(UserError, match=r"3003 hypotheses but 2737 references.*wmt14/full"):
        function(["a"] * 3003, ["a"] * 2737, "de")
    with pytest.raises(UserError, match="nothing to score"):
        function([], [], "de")


def test_wrapped_sides_are_refused() -> None:
    with pytest.raises(TypeError):
        bleu(HYPOTHESES, [[line] for line in REFERENCES], "de")
    with pytest.raises(TypeError):
        bleu("abc", "abc", "de")


def test_tokenizer_follows_the_target_language(tmp_path: Path) -> None:
    hypotheses, references = ["猫坐在红色的垫子上。"], ["猫坐在蓝色的垫子上。"]
    ours = score(hypotheses, references, "zh_CN")
    assert "tok:zh" in ours.signature and ours.compatible is None
    printed = command_line(tmp_path, hypotheses, references, "-tok", "zh", "-f", "text", "-w", "9")
    assert float(printed[0].partition(" = ")[2].split()[0]) == pytest.approx(ours.sacrebleu, abs=1e-6)
    assert ours.sacrebleu > 30 and bleu(hypotheses, references, "en") < 10


@pytest.mark.parametrize(("language", "module"), [("ja", "ja_mecab"), ("ko", "ko_mecab")])
def test_missing_extra_is_named_before_any_work(language: str, module: str, monkeypatch) -> None:
    monkeypatch.setattr(f"sacrebleu.tokenizers.tokenizer_{module}.MeCab", None)
    for ask in (bleu_metric, lambda target: bleu(["a"], ["a"], target)):
        with pytest.raises(UserError, match=rf'target language {language}.*pip install "sacrebleu\[{language}\]"'):
            ask(language)
    bleu_metric("de")
    bleu_metric("")


def test_tokenized_text_is_told_once(caplog, capsys) -> None:
    hypotheses, references = ["Ein Hund läuft ."] * 150, ["Ein Hund läuft."] * 150
    with caplog.at_level(logging.WARNING):
        assert len(score(hypotheses, references, "de").warnings) == 1
        (warning,) = score(references, hypotheses, "de").warnings
        bleu(hypotheses, references, "de")
    assert "150 of 150 references" in warning and "\n" not in warning
    assert not caplog.records and capsys.readouterr().err == ""
    assert score(references, references, "de").warnings == ()
    # As in sacreBLEU, 100 such lines are enough in a set of any size
    many = references * 2
    assert len(score(hypotheses[:100] + many, hypotheses[:99] + many + many[:1], "de").warnings) == 1
    BLEU().corpus_score(hypotheses, [references])
    assert caplog.records  # sacreBLEU itself still warns if it is called directly


def test_published_form_on_paper() -> None:
    lines = ["Der Mann sagt: „Ja“ & geht (nicht) z.B. nach Köln.", "A <b> it's 50%!"]
    assert published_form(lines[:1], "de_DE") == [
        "der mann sagt : &quot; ja &quot; &amp; geht ( nicht ) z.b. nach köln ."
    ]
    assert published_form(lines[1:], "en") == ["a &lt; b &gt; it &apos;s 50 % !"]
    with pytest.raises(ValueError, match="no Moses"):
        published_form(lines, "ja")


def test_compatible_ignores_case_and_quotes() -> None:
    ours = score(['ein hund sagt: "Wau wau"'], ["Ein Hund sagt: „Wau wau“"], "de")
    assert ours.compatible == pytest.approx(100) and ours.sacrebleu < 50
    assert score(["a b c d"], ["a b c d"], "tlh").compatible is None


DATA = Path(os.environ.get("MT_DATA", "/nonexistent"))


@pytest.mark.skipif(not (DATA / "multi30k_tok").is_dir(), reason="needs the real Multi30k files in MT_DATA")
@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_published_form_makes_the_papers_references(language: str) -> None:
    for name in ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"):
        raw = gzip.decompress((DATA / f"multi30k/{name}.{language}.gz").read_bytes()).decode().split("\n")[:-1]
        published = (DATA / f"multi30k_tok/{name}.lc.norm.tok.{language}").read_bytes().decode()
        ours = "".join(f"{line}\n" for line in published_form(raw, language))
        if (language, name) == ("fr", "test_2016_flickr"):  # one `."` at the end of a line
            pairs = zip(ours.split("\n"), published.split("\n"), strict=True)
            assert sum(one != other for one, other in pairs) == 1
        else:
            assert ours == published


def test_as_dict_and_table() -> None:
    scores = Scores(39.0, "nrefs:1|tok:13a", (38.1, 39.949), 39.4, 60.123, "chrF-signature", 45.0, "TER-signature")
    assert json.loads(json.dumps(scores.as_dict())) == {
        "sacrebleu": 39.0,
        "signature": "nrefs:1|tok:13a",
        "interval": [38.1, 39.949],
        "compatible": 39.4,
        "chrf": 60.123,
        "chrf_signature": "chrF-signature",
        "ter": 45.0,
        "ter_signature": "TER-signature",
    }
    without = Scores(1.0, "nrefs:1|tok:13a", None, None, 2.0, "chrF-signature", 300.0, "TER-signature")
    lines = table({"test_2016_flickr": scores, "own": without}).split("\n")
    assert lines[0].split() == ["test", "set", "BLEU", "95%", "interval", "compatible", "chrF2", "TER"]
    assert lines[1].split() == ["test_2016_flickr", "39.00", "[38.10,", "39.95]", "39.40", "60.12", "45.00"]
    assert lines[2].split() == ["own", "1.00", "-", "-", "2.00", "300.00"]
    assert len({len(line) for line in lines[:3]}) == 1
    assert lines[3:6] == ["BLEU: nrefs:1|tok:13a", "chrF2: chrF-signature", "TER: TER-signature"]
    assert "compatible" not in table({"own": without}).split("\n")[-1]
