"""Checkpoints: atomic, whole, opened without running code, and refused in one line where they are not."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file

from mt import checkpoint
from mt.checkpoint import Checkpoint, hash_file
from mt.checkpoint_store import CheckpointStore, average_command
from mt.config import AverageJob, DecodeConfig, ModelConfig, TrainJob, Which
from mt.errors import UserError
from mt.jobs import from_plain, to_plain
from mt.model.transformer import Transformer


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "run" / "checkpoints")


def save(store, model, tokenizers, update, score=None, state=None):
    job = TrainJob(model=model.config, decode=DecodeConfig(beam_size=7))
    name = f"update-{update:07d}"
    meta = {"update": update, "score": score}
    store.save(name, dict(model.named_parameters()), job, tokenizers, meta, state)
    store.set(last=name)
    return store.folder / name


def test_a_model_comes_back_with_its_ties_configuration_and_tokenizers(store, toy_model, toy_tokenizers):
    folder = save(store, toy_model, toy_tokenizers, 3, state={"number": 5})
    opened = Checkpoint.open(folder)
    model = opened.load_model()
    assert not model.training
    assert model.output.weight is model.source_embedding.tokens.weight is model.target_embedding.tokens.weight
    for name, parameter in toy_model.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name))
    assert len(load_file(folder / "model.safetensors")) == len(list(toy_model.named_parameters()))
    assert opened.config.model == toy_model.config
    assert opened.load_state() == {"number": 5}
    line = "the dog sees a cat"
    assert (
        opened.load_tokenizers().source.encode([line])[0].tolist() == toy_tokenizers.source.encode([line])[0].tolist()
    )
    assert opened.config.decode.beam_size == 7


def test_a_run_folder_gives_its_average_else_its_best_else_its_last(store, toy_model, toy_tokenizers):
    for update in (1, 2, 3):
        save(store, toy_model, toy_tokenizers, update)
    run = store.folder.parent
    assert Checkpoint.open(run).folder.name == "update-0000003"
    store.set(best="update-0000002")
    assert Checkpoint.open(run).folder.name == "update-0000002"
    store.average(["update-0000001", "update-0000002"])
    assert Checkpoint.open(run).folder.name == "average-0000002-of-2"
    store.set(average=None)
    assert Checkpoint.open(run).folder.name == "update-0000002"


def test_the_average_is_the_mean_and_of_one_the_same(store, toy_model, toy_tokenizers):
    save(store, toy_model, toy_tokenizers, 900)
    before = {name: parameter.detach().clone() for name, parameter in toy_model.named_parameters()}
    with torch.no_grad():
        for parameter in toy_model.parameters():
            parameter.add_(1)
    save(store, toy_model, toy_tokenizers, 1000)
    mean = Checkpoint.open(store.average(["update-0000900", "update-0001000"])).load_weights()
    for name, parameter in before.items():
        torch.testing.assert_close(mean[name], parameter + 0.5)
    one = Checkpoint.open(store.average(["update-0000900"])).load_weights()
    assert all(torch.equal(one[name], before[name]) for name in before)


def test_checkpoints_are_picked_by_number_or_by_score(store, toy_model, toy_tokenizers):
    for update, score in ((9_999_900, 30.0), (9_999_999, 10.0), (10_000_000, 20.0), (10_000_001, None)):
        save(store, toy_model, toy_tokenizers, update, score)
    assert store.pick(2, Which.last) == ["update-10000000", "update-10000001"]
    assert store.pick(2, Which.best) == ["update-9999900", "update-10000000"]


def test_deleting_spares_what_the_index_names(store, toy_model, toy_tokenizers):
    for update in (1, 2, 3):
        save(store, toy_model, toy_tokenizers, update)
    store.set(best="update-0000001")
    store.delete(store.names())
    assert store.names() == ["update-0000001", "update-0000003"]


def test_a_failed_save_leaves_nothing_and_keeps_the_old(store, toy_model, toy_tokenizers, monkeypatch):
    save(store, toy_model, toy_tokenizers, 1)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"update-0000002.*No space"):
        save(store, toy_model, toy_tokenizers, 2)
    monkeypatch.undo()
    assert sorted(path.name for path in store.folder.iterdir()) == ["index.json", "update-0000001"]
    assert Checkpoint.open(store.folder.parent).folder.name == "update-0000001"


@pytest.mark.parametrize(
    "error", [SafetensorError("No space left\n(os error 28)"), RuntimeError("file write failed\n")]
)
def test_what_the_writers_raise_for_a_full_disk_is_one_line(store, toy_model, toy_tokenizers, monkeypatch, error):
    save(store, toy_model, toy_tokenizers, 1)

    def full(*arguments):
        raise error

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(UserError, match="cannot save") as told:
        save(store, toy_model, toy_tokenizers, 2)
    assert "\n" not in str(told.value)
    assert store.names() == ["update-0000001"]


def test_what_a_killed_process_left_is_removed(store, toy_model, toy_tokenizers):
    folder = save(store, toy_model, toy_tokenizers, 1)
    (folder.parent / ".update-0000002.123").mkdir()
    (folder.parent / ".index.json.123").write_text("")
    store.clean()
    assert sorted(path.name for path in store.folder.iterdir()) == ["index.json", "update-0000001"]


def rewrite(folder, name, text):
    """As somebody would who also mends the sums."""
    (folder / name).write_text(text)
    meta = json.loads((folder / "meta.json").read_text())
    meta["hashes"][name] = hash_file(folder / name)
    (folder / "meta.json").write_text(json.dumps(meta))


def damage(folder, what):
    if what == "truncated weights":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    elif what == "changed weights":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    elif what == "no weights":
        (folder / "model.safetensors").unlink()
    elif what == "meta is no json":
        (folder / "meta.json").write_text("{")
    elif what == "newer format":
        (folder / "meta.json").write_text(json.dumps(json.loads((folder / "meta.json").read_text()) | {"format": 99}))
    elif what == "changed configuration":
        (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + "novelty: 1\n")
    elif what == "unknown key":
        rewrite(folder, "config.yaml", (folder / "config.yaml").read_text() + "novelty: 1\n")
    elif what == "config is no yaml":
        rewrite(folder, "config.yaml", "a: [")
    elif what == "impossible number":
        rewrite(folder, "config.yaml", (folder / "config.yaml").read_text().replace("heads: 2", "heads: 0"))
    elif what == "wrong type":
        rewrite(folder, "config.yaml", (folder / "config.yaml").read_text().replace("heads: 2", "heads: two"))
    elif what == "no tokenizer":
        (folder / "tokenizer.model").unlink()
    else:
        other = Checkpoint.open(folder)
        job = replace(other.config, model=ModelConfig(d_model=8, heads=2))
        rewrite(folder, "config.yaml", yaml.safe_dump(to_plain(job)))


def open_all(folder):
    opened = Checkpoint.open(folder)
    opened.load_tokenizers()
    opened.load_model()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("truncated weights", "damaged"),
        ("changed weights", "damaged"),
        ("no weights", "model.safetensors cannot be read"),
        ("meta is no json", "meta.json cannot be read"),
        ("newer format", "format 99"),
        ("changed configuration", "config.yaml is damaged"),
        ("unknown key", "novelty"),
        ("impossible number", "model.heads=0"),
        ("wrong type", "heads='two'"),
        ("config is no yaml", "config.yaml cannot be read"),
        ("no tokenizer", "tokenizer.model"),
        ("another model's configuration", "shape|on one side only"),
    ],
)
def test_damage_is_told_in_one_line(store, toy_model, toy_tokenizers, what, said):
    folder = save(store, toy_model, toy_tokenizers, 1)
    damage(folder, what)
    with pytest.raises(UserError, match=said) as error:
        open_all(folder)
    assert "\n" not in str(error.value)


def test_a_missing_or_empty_folder_is_told(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        Checkpoint.open(tmp_path / "none")
    with pytest.raises(UserError, match="no checkpoint in it"):
        Checkpoint.open(tmp_path)


class Crafted:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_crafted_training_state_runs_nothing(store, toy_model, toy_tokenizers, tmp_path):
    folder = save(store, toy_model, toy_tokenizers, 1, state={})
    (folder / "training_state.pt").write_bytes(pickle.dumps(Crafted(str(tmp_path / "pwned"))))
    meta = json.loads((folder / "meta.json").read_text())
    meta["hashes"]["training_state.pt"] = hash_file(folder / "training_state.pt")
    (folder / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match="cannot be read"):
        Checkpoint.open(folder).load_state()
    assert not (tmp_path / "pwned").exists()


def test_training_state_loads_where_mt_was_never_imported(store, toy_model, toy_tokenizers):
    from mt.config import Device, Precision
    from mt.runtime.device import start
    from mt.training.schedule import make_optimizer
    from mt.training.state import Progress, Recent, training_state

    runtime = start(Device.cpu, Precision.fp32, torch.get_num_threads())
    optimizer = make_optimizer(toy_model, TrainJob().optim)
    toy_model.logits(toy_model(torch.tensor([[5, 3]]), torch.tensor([[2]]))).sum().backward()
    optimizer.step()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    progress = Progress(validated=[(1, 2.0)], best=(1.0, -2.0))
    state = training_state(progress, Recent(nll=1.5), optimizer, scaler, runtime, {"metrics.jsonl": 10})
    folder = save(store, toy_model, toy_tokenizers, 1, state=state)
    code = "import sys, torch; torch.load(sys.argv[1]); assert not [n for n in sys.modules if n.split('.')[0] == 'mt']"
    subprocess.run([sys.executable, "-c", code, str(folder / "training_state.pt")], check=True)


def test_a_job_survives_the_way_through_plain_types():
    job = replace(TrainJob(), seed=9, decode=DecodeConfig(beam_size=3))
    assert from_plain(TrainJob, json.loads(json.dumps(to_plain(job)))) == job


def test_mt_average_names_the_new_folder(store, toy_model, toy_tokenizers, capsys):
    for update in (1, 2, 3):
        save(store, toy_model, toy_tokenizers, update)
    average_command(AverageJob(checkpoint=str(store.folder.parent), count=2))
    assert capsys.readouterr().out.strip() == str(store.folder / "average-0000003-of-2")
    assert store.index()["average"] == "average-0000003-of-2"
    other = store.average(["update-0000001", "update-0000003"])
    assert other.name.startswith("average-0000003-of-2-") and (store.folder / "average-0000003-of-2").exists()
    with pytest.raises(UserError, match="only 3"):
        average_command(AverageJob(checkpoint=str(store.folder.parent), count=4))


def test_weights_of_another_vocabulary_are_refused(store, toy_model, toy_tokenizers):
    other = Transformer(toy_model.config, 50, 50)
    folder = save(store, other, toy_tokenizers, 1)
    with pytest.raises(UserError, match="shape"):
        Checkpoint.open(folder).load_model()
