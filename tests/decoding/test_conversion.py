"""Converted models: every architecture gives the same translations as mt's own search."""

import pytest
from export_support import LINES, exported_run

from mt.config.schema import Activation, DecodeConfig, Norm, Positions, Tie
from mt.decoding.exported import ExportedTranslator
from mt.decoding.translator import Translator


@pytest.fixture
def exported(toy_tokenizers, tmp_path):
    """Returns a function that makes a run and its export: (run, export)."""
    return lambda *arguments, **options: exported_run(tmp_path, toy_tokenizers, *arguments, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": Norm.post, "activation": Activation.gelu},
        {"positions": Positions.learned, "max_positions": 90, "tie": Tie.none},
        {"tie": Tie.output},
    ],
)
@pytest.mark.parametrize("beam", [1, 4])
def test_both_engines_agree(exported, options, beam):
    run, folder = exported(**options)
    decode = DecodeConfig(beam_size=beam, nbest=beam, max_length_a=0.0, max_length_b=9)
    own = Translator.load(run, decode, "cpu", threads=1).translate_nbest(LINES)
    other = ExportedTranslator.load(folder, decode, threads=1).translate_nbest(LINES)
    assert other[3][0].text == ""
    if beam == 1:
        assert [found[0].tokens for found in other] == [found[0].tokens for found in own]
        return
    common = 0
    for ours, theirs in zip(own, other, strict=True):  # the searches differ, and so do scores at the limit
        scores = {each.tokens: each for each in theirs if each.text and not each.at_limit}
        for each in ours:
            if each.tokens in scores and not each.at_limit:
                common += 1
                found = scores[each.tokens]
                assert found.score == pytest.approx(each.score, abs=0.05)  # CTranslate2 scores only allowed tokens
                assert found.log_probability == pytest.approx(each.log_probability, abs=0.3)
    assert common > len(LINES)
