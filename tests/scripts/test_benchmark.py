"""The numbers that the benchmark computes from the tools' output."""

import sys
from pathlib import Path

import pytest

from mt.config.schema import ModelConfig
from mt.model.transformer import Transformer

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.syspath_prepend(str(SCRIPTS / "benchmarking"))
    yield
    for name in ("benchmark", "tools", "ours", "workload"):
        sys.modules.pop(name, None)


def test_speed_is_that_of_all_reports_but_the_first(scripts):
    import tools

    said = "Tokens per Sec:      100\nx\nTokens per Sec:      300, Lr\nTokens per Sec:      600\n"
    found = tools._speed(tools.Finished(said, 1.0, 5.0), r"Tokens per Sec:\s+([\d.]+)")
    assert found == {"target_tokens_per_second": pytest.approx(400), "peak_memory_mib": 5.0}  # equal tokens each
    with pytest.raises(RuntimeError, match="no speed was reported"):
        tools._speed(tools.Finished("Tokens per Sec: 100", 1.0, 5.0), r"Tokens per Sec:\s+([\d.]+)")


def test_medians_spread_and_ratios(scripts, capsys):
    import benchmark

    rounds = {"mt": [{"target_tokens_per_second": speed, "peak_memory_mib": 1.0} for speed in (90.0, 100.0, 120.0)]}
    rounds["marian"] = [{"target_tokens_per_second": 25.0, "peak_memory_mib": 2.0}]
    summary = benchmark._summarize(rounds)
    assert summary["mt"]["target_tokens_per_second"] == 100 and summary["mt"]["spread"] == pytest.approx(0.3)
    benchmark._print("training", summary, {})
    assert "| marian | 25 | 0% | 4.00 |" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["tiny", "base"])
def test_the_work_of_an_update_is_that_of_the_models_own_matrices(scripts, name):
    import ours
    from workload import SIZES, VOCABULARY

    size = SIZES[name]
    config = ModelConfig(
        d_model=size.width, d_ff=size.inner, heads=size.heads, encoder_layers=size.layers, decoder_layers=size.layers
    )
    weights = {k: p.numel() for k, p in Transformer(config, VOCABULARY, VOCABULARY).named_parameters() if p.dim() == 2}
    output = weights.pop("source_embedding.tokens.weight")
    on_source = sum(n for k, n in weights.items() if k.startswith("encoder") or "cross_attention.key_value" in k)
    on_target = sum(weights.values()) - on_source + output
    assert ours.training_flops(name, 7, 11) == 6 * (7 * on_source + 11 * on_target)
