"""Shared fixtures: a toy model and its tokenizers."""

import signal

import pytest
import torch
from tests_support import toy_pairs

# Tests send themselves what nohup and a shell's background set aside
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def toy_tokenizers():
    from mt.config import TokenizerConfig
    from mt.data.tokenizer_training import train_tokenizers

    pairs = toy_pairs(300)
    config = TokenizerConfig(vocab_size=330)
    sides = [lambda: iter([pair[0] for pair in pairs]), lambda: iter([pair[1] for pair in pairs])]
    return train_tokenizers(*sides, config, "en", "de", seed=1, log=lambda line: None)


@pytest.fixture
def store(tmp_path):
    """An empty store of checkpoints, in a run's folder."""
    from mt.checkpoint_store import CheckpointStore

    return CheckpointStore(tmp_path / "run" / "checkpoints")


@pytest.fixture
def toy_model(toy_tokenizers):
    """Untrained, in evaluation mode, with biases and output sharp enough that hypotheses differ."""
    from mt.config import ModelConfig
    from mt.model.transformer import Transformer

    torch.manual_seed(1)
    config = ModelConfig(d_model=16, d_ff=23, heads=2, encoder_layers=2, decoder_layers=2, dropout=0.1)
    model = Transformer(config, toy_tokenizers.source.size, toy_tokenizers.target.size)
    with torch.no_grad():
        model.output.weight.mul_(3)
    return model.eval()
