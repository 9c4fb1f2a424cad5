"""The training state has plain types and the key names of its format, and is restored unchanged."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests_support import learner_of, save_checkpoint

from mt.checkpoint.folder import Checkpoint
from mt.errors import UserError
from mt.training.metrics import TrainingMetrics
from mt.training.state import TrainerState, pack, restore

FORMAT_2 = Path(__file__).parent.parent / "fixtures" / "checkpoint-format-2"


@pytest.fixture
def stepped(toy_model):
    """The toy model and its optimizer after one update."""
    learner = learner_of(toy_model)
    toy_model.logits(toy_model(torch.tensor([[5, 3]]), torch.tensor([[2]]))).sum().backward()
    learner.optimizer.step()
    return learner


def test_training_state_loads_where_mt_was_never_imported(store, toy_model, toy_tokenizers, stepped):
    state = TrainerState(validated=[(1, 2.0)], best=(1.0, -2.0), metrics=TrainingMetrics(nll=1.5))
    packed = pack(state, stepped, {"metrics.jsonl": 10})
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 1, state=packed)
    code = "import sys, torch; torch.load(sys.argv[1]); assert not [n for n in sys.modules if n.split('.')[0] == 'mt']"
    subprocess.run([sys.executable, "-c", code, str(folder / "training_state.pt")], check=True)


def test_a_state_is_restored_from_its_file_as_it_was(store, toy_model, toy_tokenizers, stepped):
    metrics = TrainingMetrics(*(float(number) for number in range(1, 10)))
    state = TrainerState(update=7, epoch=2, best=(1.0, -2.0), validated=[(1, 2.0)], metrics=metrics)
    packed = pack(state, stepped, {"metrics.jsonl": 10})
    drawn = torch.rand(3)
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 7, state=packed)
    loaded = Checkpoint.open(folder).load_state()
    assert loaded["log"] == {"metrics.jsonl": 10}
    learner = learner_of(toy_model)
    restored, processes = restore(loaded, 1, learner)
    assert (restored, processes) == (state, 1)
    assert restored.metrics == metrics
    assert torch.equal(torch.rand(3), drawn)
    for parameter in toy_model.parameters():
        assert torch.equal(learner.optimizer.state[parameter]["exp_avg"], stepped.optimizer.state[parameter]["exp_avg"])


def test_the_state_of_a_checkpoint_of_format_2_is_restored_for_ever():
    """The checkpoint is never regenerated, and a run must still resume from it."""
    checkpoint = Checkpoint.open(FORMAT_2)
    learner = learner_of(checkpoint.load_model())
    state, processes = restore(checkpoint.load_state(), 1, learner)
    parameters = learner.optimizer.param_groups[0]["params"]
    assert (state.update, processes, len(learner.optimizer.state)) == (700, 1, len(parameters))


def test_what_is_written_has_the_names_of_format_2(stepped):
    packed, then = pack(TrainerState(), stepped, {}), Checkpoint.open(FORMAT_2).load_state()
    assert packed.keys() == then.keys()
    assert packed["progress"].keys() == then["progress"].keys()
    assert packed["processes"][0].keys() == then["processes"][0].keys()
    assert packed["processes"][0]["recent"].keys() == then["processes"][0]["recent"].keys()


@pytest.mark.parametrize("change", [{"progress": {"update": 1, "novelty": 2}}, {"processes": []}, {"optimizer": {}}])
def test_another_state_is_refused_in_one_line(stepped, change):
    packed = pack(TrainerState(), stepped, {})
    with pytest.raises(UserError, match="does not fit this version of mt") as error:
        restore(packed | change, 1, stepped)
    assert "\n" not in str(error.value)
