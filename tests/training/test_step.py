"""Creating a learner."""

import torch

from mt.config.schema import ModelConfig, TrainConfig, TrainingConfig
from mt.runtime.device import Runtime
from mt.training.step import Learner

CPU = Runtime(torch.device("cpu"), torch.float32)


def test_a_compiled_model_keeps_its_parameters_and_is_compiled_for_any_length(toy_tokenizers, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: asked.append((self, options)))
    for compiled in (False, True):
        config = TrainConfig(model=ModelConfig(d_model=16, heads=2), train=TrainingConfig(compile=compiled))
        learner = Learner.create(config, toy_tokenizers, CPU, None)
        assert learner.ddp_model is learner.model
        assert asked == ([(learner.model, {"dynamic": True})] if compiled else [])
