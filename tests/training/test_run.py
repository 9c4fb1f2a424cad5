"""Training end to end on a toy language, and changes that must not affect its numbers."""

import json
import math
import os
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from tests_support import last_weights, raw_events, records, toy_config, toy_pairs, write_pairs

from mt.checkpoint.folder import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.cli import main
from mt.commands.evaluate import EvaluateConfig, evaluate
from mt.config.schema import Device, Norm, Optimizer, Positions, Precision, Schedule
from mt.data.corpus import PreparedCorpus
from mt.decoding.translator import Translator
from mt.errors import Corrupt, DataUnavailable, UserError
from mt.files import locked
from mt.run_folder import RunFolder, find_checkpoint
from mt.runtime.stop import Interrupted
from mt.training import loop, step
from mt.training import run as story
from mt.training.run import train
from mt.training.state import TrainerState


@pytest.fixture
def config(tmp_path):
    return toy_config(tmp_path)


PRECISIONS = {"plain": "fp32", "bf16": "bf16"}  # {processor: the precision that auto chooses}


def with_changes(config, changes):
    """The configuration with changes given as {section: {key: value}}."""
    sections = {section: replace(getattr(config, section), **values) for section, values in changes.items()}
    return replace(config, **sections)


def run(config, **changes):
    """Train with changes given as section={key: value}, and return the run folder."""
    config = with_changes(config, changes)
    threads = torch.get_num_threads()
    try:
        assert train(config) == 0
    finally:
        torch.set_num_threads(threads)
    return Path(config.run.root) / config.run.name


def weights(folder):
    return last_weights(RunFolder(folder))


def store_of(folder):
    return CheckpointStore(RunFolder(folder))


def opened(folder):
    """The checkpoint that a run folder stands for."""
    return Checkpoint.open(find_checkpoint(folder))


def largest_difference(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("norm", list(Norm))
def test_it_learns_what_it_was_shown_and_everything_is_written_down(config, norm, tmp_path, capsys):
    shown = write_pairs(tmp_path, "shown", toy_pairs(20))
    folder = run(
        config,
        data={"train": shown, "dev": shown, "test": {"shown": shown}},
        model={"d_model": 64, "d_ff": 128, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "norm": norm},
        optim={"schedule": Schedule.inverse_sqrt, "peak_lr": 0.003, "warmup_steps": 40, "label_smoothing": 0.0},
        train={"max_updates": 240, "validate_every": 120, "average": 2, "log_every": 60},
    )
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["shown"]["sacrebleu"] >= 95
    assert {path.name for path in folder.iterdir()} == {
        *(".lock", ".saved", "config.yaml", "train.log", "metrics.jsonl", "cleaning.json", "scores.json"),
        *("checkpoints", "tensorboard", "hypotheses"),
    }
    hypotheses = (folder / scores["shown"]["hypotheses"]).read_text(encoding="utf-8").splitlines()
    assert len(hypotheses) == 20 and scores["shown"]["signature"].startswith("nrefs:1|case:mixed")
    log = (folder / "train.log").read_text()
    assert "\r" not in log and "20 of 20 pairs are also in the training text" in log
    assert opened(folder).folder.name == "average-0000240-of-2"
    validation = records(folder, "validation")
    assert [line["update"] for line in validation] == [120, 240]
    assert validation[1]["perplexity"] == pytest.approx(math.exp(validation[1]["nll"]))
    training = records(folder, "train")[-1]
    assert {
        "loss",
        "nll",
        "learning_rate",
        "gradient_norm",
        "target_tokens_per_second",
        "padding_share",
    } <= training.keys()
    evaluated = folder.parent / "evaluated"
    evaluate(EvaluateConfig(checkpoint=str(folder), output=str(evaluated), decode=config.decode, device=Device.cpu))
    again = json.loads((evaluated / "scores.json").read_text())
    assert again["shown"] == scores["shown"]
    assert "shown" in capsys.readouterr().out
    evaluate(EvaluateConfig(checkpoint=str(folder), all_checkpoints=True, decode=config.decode, device=Device.cpu))
    assert (folder / "scores-update-0000120.json").exists()


def test_validations_bleu_is_what_evaluate_gives_for_that_checkpoint(config):
    folder = run(config, train={"max_updates": 60, "validate_beam": 2})
    logged = max(record["bleu_beam2"] for record in records(folder, "validation"))  # the best one is scored
    assert json.loads((folder / "scores.json").read_text())["dev"]["sacrebleu"] == pytest.approx(logged, abs=0.005)


@pytest.mark.parametrize(
    ("name", "precision", "tolerance", "relative"),
    [("sgd", "fp32", 1e-6, 1e-4), ("adam", "fp32", 5e-4, 1e-4), ("sgd", "bf16", 1e-3, 1e-3)],
)
def test_the_batch_limit_changes_no_update(config, name, precision, tolerance, relative):
    config = replace(config, train=replace(config.train, precision=Precision(precision)))
    optim = {"name": Optimizer(name), "peak_lr": 0.1 if name == "sgd" else 0.001, "eps": 1e-6}
    whole, *others = [
        run(config, run={"name": f"run{limit}"}, optim=optim, train={"batch_tokens": limit})
        for limit in (4000, 250, 90)
    ]
    losses = [line["loss"] for line in records(whole, "train")]
    for other in others:
        assert largest_difference(weights(whole), weights(other)) < tolerance
        assert [line["loss"] for line in records(other, "train")] == pytest.approx(losses, rel=relative)
    assert (
        largest_difference(
            weights(whole), weights(run(config, run={"name": "seed"}, optim=optim, train={"max_updates": 4}))
        )
        > tolerance
    )


def test_validating_and_saving_often_changes_nothing(config):
    dropout = {"dropout": 0.2}
    often = run(config, model=dropout, train={"validate_every": 1, "save_every": 1})
    never = run(config, run={"name": "never"}, model=dropout)
    assert largest_difference(weights(often), weights(never)) == 0
    assert [r["loss"] for r in records(often, "train")] == [r["loss"] for r in records(never, "train")]


@pytest.mark.parametrize(("stop_at", "precision"), [(17, "fp32"), (18, "fp32"), (17, "bf16")])
def test_stopped_and_resumed_equals_undisturbed(config, stop_at, precision, monkeypatch):
    """Stopped within the sixth epoch, and exactly at its end."""
    config = replace(config, train=replace(config.train, precision=Precision(precision)))
    settings = {
        "model": {"dropout": 0.2},
        "train": {"max_updates": 30, "average": 2, "update_tokens": 700, "log_every": 4},
    }
    undisturbed = run(config, run={"name": "undisturbed"}, **settings)
    real = TrainerState.advance

    def interrupt(self, *arguments):
        real(self, *arguments)
        if self.update == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(TrainerState, "advance", interrupt)
    assert train(with_changes(config, settings)) == 128 + 15
    monkeypatch.undo()
    torch.manual_seed(99)
    resumed = run(config, **settings)
    assert largest_difference(weights(undisturbed), weights(resumed)) == 0
    for kind in ("train", "validation"):
        one, other = records(undisturbed, kind), records(resumed, kind)
        assert [r["update"] for r in one] == [r["update"] for r in other]
        assert [r["nll"] for r in one] == [r["nll"] for r in other]
    assert [r["update"] for r in records(undisturbed, "validation")] == list(range(3, 31, 3))
    assert raw_events(resumed) == raw_events(undisturbed) != []
    assert json.loads((undisturbed / "scores.json").read_text()) == json.loads((resumed / "scores.json").read_text())


def test_a_finished_run_is_left_alone_and_a_larger_budget_resumes_it(config, capsys):
    folder = run(config)
    stamp = (folder / "scores.json").stat().st_mtime_ns
    run(config)
    assert "is finished" in capsys.readouterr().err
    assert (folder / "scores.json").stat().st_mtime_ns == stamp
    run(config, train={"max_updates": 7})
    assert records(folder, "train")[-1]["update"] == 7
    assert (folder / "scores.json").stat().st_mtime_ns > stamp
    assert "train.max_updates: 5 -> 7" in (folder / "train.log").read_text()


def test_a_run_that_cools_down_keeps_its_budget(config):
    settings = {"optim": {"cooldown": 0.5}, "train": {"max_updates": 4}}
    folder = run(config, **settings)
    assert [line["learning_rate"] for line in records(folder, "train")] == pytest.approx([0.01, 0.01, 0.01, 0.005])
    settings["train"] = {"max_updates": 5}
    with pytest.raises(UserError, match=r"train\.max_updates: 4 -> 5"):
        run(config, **settings)


def test_other_settings_under_the_same_name_are_refused_with_the_difference(config):
    run(config)
    with pytest.raises(UserError, match=r"model\.d_ff: 32 -> 64"):
        run(config, model={"d_ff": 64})


def test_another_text_under_an_unfinished_run_is_refused(config):
    run(config)
    path = Path(config.data.train[0])
    path.write_text(path.read_text(encoding="utf-8").replace("dog", "bird", 1), encoding="utf-8")
    with pytest.raises(UserError, match="was trained on"):
        run(config, train={"max_updates": 9})


def test_a_start_that_failed_does_not_take_the_name(config):
    with pytest.raises(UserError, match=r"tokenizer\.vocab_size=20"):
        run(config, tokenizer={"vocab_size": 20})
    run(config)


def test_a_run_has_one_writer(config, monkeypatch, capsys):
    monkeypatch.setattr(story, "locked", partial(locked, patience=0.3))
    held = Path(config.run.root) / "run"
    with locked(RunFolder(held).lock), pytest.raises(UserError, match=f"process {os.getpid()} on .* is writing"):
        run(config)
    assert "waiting up to 0 seconds for it to end" in capsys.readouterr().err
    run(config)


def test_a_held_out_part_is_scored_and_is_no_leak(config):
    folder = run(config, data={"dev": [], "test": {}})
    assert set(json.loads((folder / "scores.json").read_text())) == {"dev"}
    assert "in the training text" not in (folder / "train.log").read_text()
    before = json.loads((folder / "scores.json").read_text())
    (folder / "scores.json").unlink()
    evaluate(EvaluateConfig(checkpoint=str(folder), decode=config.decode, device=Device.cpu))
    assert json.loads((folder / "scores.json").read_text()) == before


def test_time_that_runs_out_still_ends_with_a_validation(config):
    folder = run(config, train={"max_updates": None, "max_minutes": 0.01, "save_every": 1, "validate_every": 10**6})
    last = records(folder, "train")[-1]["update"]
    assert [record["update"] for record in records(folder, "validation")] == [last]


def test_one_bad_test_set_does_not_cost_the_others(config):
    extra = Path(config.data.test["toy"][0]).with_name("extra.tsv")
    extra.write_text("a dog\tein Hund\n", encoding="utf-8")
    changed = replace(config, data=replace(config.data, test={**config.data.test, "extra": [str(extra)]}))
    assert set(json.loads((run(changed) / "scores.json").read_text())) == {"dev", "toy", "extra"}
    extra.unlink()
    options = {"checkpoint": str(Path(config.run.root) / "run"), "decode": config.decode, "device": Device.cpu}
    evaluate(EvaluateConfig(output=str(extra.parent / "again"), **options))
    assert set(json.loads((extra.parent / "again" / "scores.json").read_text())) == {"dev", "toy"}


def test_budgets_by_epochs_and_patience(config):
    folder = run(config, run={"name": "epochs"}, train={"max_updates": None, "max_epochs": 2, "update_tokens": 700})
    updates = [line["update"] for line in records(folder, "train")]
    validated = [line["update"] for line in records(folder, "validation")]
    assert validated == [updates[-1] // 2, updates[-1]]
    folder = run(
        config,
        run={"name": "patience"},
        optim={"peak_lr": 1e-12},
        train={"max_updates": 50, "validate_every": 1, "patience": 3},
    )
    progress = Checkpoint.open(store_of(folder).folder / "update-0000004").load_state()["progress"]
    assert progress["validations_without_better"] == 3


def test_only_needed_checkpoints_are_kept(config):
    folder = run(config, train={"max_updates": 8, "validate_every": 1, "average": 3, "save_every": 1})
    index = store_of(folder).index()
    kept = set(store_of(folder).names())
    assert kept == {"update-0000006", "update-0000007", "update-0000008", index["best"]}


def test_a_gradient_that_is_no_number_is_skipped_and_many_end_the_run(config, monkeypatch):
    real = step.label_smoothed_loss
    broken: set[int] = {4}  # call 1 tries the largest batch before the first update
    calls = 0

    def sometimes(states, *arguments):
        nonlocal calls
        if states.requires_grad:
            calls += 1
        found = real(states, *arguments)
        return replace(found, smoothed=found.smoothed * math.nan) if states.requires_grad and calls in broken else found

    monkeypatch.setattr(step, "label_smoothed_loss", sometimes)
    folder = run(config)
    assert "update 3 skipped" in (folder / "train.log").read_text()
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(folder).values())
    broken |= set(range(8, 40))
    with pytest.raises(UserError, match=r"10 updates in a row.*train\.en and train\.de, line \d+;"):
        run(config, run={"name": "broken"}, train={"max_updates": 30, "save_every": 1})
    assert weights(Path(config.run.root) / "broken")
    named = (Path(config.run.root) / "broken" / "not_finite.txt").read_text(encoding="utf-8").splitlines()
    assert len(set(named)) == len(named) > 4


def test_training_goes_without_its_test_files(config, monkeypatch):
    """Test files are fetched after the last update; if they are missing, only the development set is scored."""
    real = story.locate
    checkpoints = Path(config.run.root) / "run" / "checkpoints"

    def missing():
        assert (checkpoints / "update-0000005").exists()
        raise DataUnavailable("gone")

    monkeypatch.setattr(story, "locate", lambda *arguments: replace(real(*arguments), find_tests={"toy": missing}))
    folder = run(config)
    assert set(json.loads((folder / "scores.json").read_text())) == {"dev"}
    assert "toy is not scored: gone" in (folder / "train.log").read_text()


def test_hypotheses_do_not_depend_on_the_references(config):
    folder = run(config)
    for path in config.data.test["toy"][1:]:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        Path(path).write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")
    before = (folder / "hypotheses" / "scores.toy.de").read_bytes()
    evaluate(EvaluateConfig(checkpoint=str(folder), decode=config.decode, device=Device.cpu))
    assert (folder / "hypotheses" / "scores.toy.de").read_bytes() == before


def test_everything_needed_is_in_the_checkpoint(config, tmp_path):
    folder = run(config)
    lines = [source for source, _ in toy_pairs(5)]
    expected = Translator.load(folder, device="cpu").translate(lines)
    moved = tmp_path / "elsewhere"
    shutil.copytree(opened(folder).folder, moved)
    shutil.rmtree(config.data.prepared_dir)
    shutil.rmtree(folder)
    assert Translator.load(moved, device="cpu").translate(lines) == expected
    source, target = config.data.test["toy"]
    before = sorted(path for path in tmp_path.rglob("*"))
    evaluate(EvaluateConfig(checkpoint=str(moved), input=source, reference=target, device=Device.cpu))
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_bf16_products_train_too_and_are_another_setting(config):
    folder = run(config, train={"precision": Precision.bf16})
    assert all(tensor.dtype == torch.float32 for tensor in weights(folder).values())
    losses = [line["loss"] for line in records(folder, "train")]
    exact = [
        line["loss"]
        for line in records(run(config, run={"name": "exact"}, train={"precision": Precision.fp32}), "train")
    ]
    assert losses == pytest.approx(exact, rel=0.02) and losses != exact


@pytest.mark.auto
def test_auto_trains_in_the_type_that_the_processor_is_fast_at(config, processor):
    folder = run(config, train={"precision": Precision.auto, "max_updates": 2})
    product = {"plain": "float32", "bf16": "bfloat16"}[processor]
    assert f" threads, {product}\n" in (folder / "train.log").read_text()
    named = run(config, run={"name": "named"}, train={"precision": Precision(PRECISIONS[processor]), "max_updates": 2})
    assert largest_difference(weights(folder), weights(named)) == 0


def test_evaluating_files_checks_their_counts(config, tmp_path):
    folder = run(config)
    source, target = config.data.test["toy"]
    options = {"checkpoint": str(folder), "decode": config.decode, "device": Device.cpu}
    evaluate(EvaluateConfig(input=source, reference=target, **options))
    assert set(json.loads((folder / "scores-files.json").read_text())) == {"test"}
    assert set(json.loads((folder / "scores.json").read_text())) == {"dev", "toy"}
    with pytest.raises(UserError, match=r"40 lines.* 20"):
        evaluate(EvaluateConfig(input=source, reference=config.data.dev[1], **options))


def test_scores_with_other_options_leave_those_of_record_alone(config):
    folder = run(config)
    record = (folder / "scores.json").read_text()
    for name, options in (
        ("", {"decode": replace(config.decode, batch_tokens=100)}),
        ("-other_options", {"decode": replace(config.decode, beam_size=1)}),
        ("-other_options", {"decode": config.decode, "precision": Precision.bf16}),
    ):
        evaluate(EvaluateConfig(checkpoint=str(folder), device=Device.cpu, **options))
        scores = json.loads((folder / f"scores{name}.json").read_text())
        assert scores["toy"]["decode"]["beam_size"] == options["decode"].beam_size
        assert "input" not in scores["toy"]
        assert name == "" or (folder / "scores.json").read_text() == record
        record = (folder / "scores.json").read_text()


def test_scores_of_different_files_stand_beside_each_other(config, tmp_path):
    folder = run(config)
    source, target = config.data.test["toy"]
    files = [tmp_path / name for name in ("a/news.v1.en", "a/news.v2.en", "b/news.v1.en")]
    for path in (*files, files[0]):
        path.parent.mkdir(exist_ok=True)
        shutil.copy(source, path)
        options = {"checkpoint": str(folder), "decode": config.decode, "device": Device.cpu}
        evaluate(EvaluateConfig(input=str(path), reference=target, **options))
    scores = json.loads((folder / "scores-files.json").read_text())
    assert [found["input"] for found in scores.values()] == [str(path) for path in files]
    assert list(scores)[:2] == ["news.v1", "news.v2"]
    assert len({(folder / found["hypotheses"]).name for found in scores.values()}) == 3


def test_sources_beyond_the_positions_are_counted_where_they_are_scored(config, tmp_path, capsys):
    shown = write_pairs(tmp_path, "shown", [("a dog " * 60, "ein Hund"), ("a dog", "ein Hund")])
    settings = {"data": {"test": {"shown": shown}}, "model": {"positions": Positions.learned, "max_positions": 41}}
    run(config, **settings)
    assert "shown: 1 sources exceed the model's maximum length" in capsys.readouterr().err


def test_a_signal_while_subwords_are_drawn_ends_the_run_at_once(config, monkeypatch):
    config = replace(config, tokenizer=replace(config.tokenizer, sampling=0.1))
    epoch, given_up = PreparedCorpus.epoch, []

    def signalled(self, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            return epoch(self, *arguments)
        except Interrupted:
            given_up.append(True)
            raise

    with monkeypatch.context() as patch:
        patch.setattr(PreparedCorpus, "epoch", signalled)
        assert train(config) == 143
    assert given_up
    assert records(run(config), "train")[-1]["update"] == 5


def test_a_folder_with_numbers_of_something_else_is_left_alone(config):
    folder = Path(config.run.root) / config.run.name
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"has files that mt did not write \(metrics\.jsonl\)"):
        train(config)
    assert (folder / "metrics.jsonl").read_text() == "{}\n"


def test_fine_tuning_begins_from_weights_and_tokenizers(config, tmp_path, monkeypatch):
    first = run(config, train={"max_updates": 60})
    before = opened(first)
    other = write_pairs(tmp_path, "other", [(source + " zebra", target) for source, target in toy_pairs(300)[250:]])
    settings = {"run": {"name": "tuned"}, "data": {"train": other}, "train": {"init_from": str(first)}}
    tuned = run(config, **settings)
    assert records(tuned, "train")[0]["nll"] < 0.7 * records(first, "train")[0]["nll"]
    assert records(tuned, "train")[0]["learning_rate"] == records(first, "train")[0]["learning_rate"]
    for name in ("tokenizer.model", "tokenizer.json"):
        assert (opened(tuned).folder / name).read_bytes() == (before.folder / name).read_bytes()
    shutil.rmtree(first)
    settings["train"]["max_updates"] = 7
    run(config, **settings)  # resumes from its own checkpoint
    assert [line["update"] for line in records(tuned, "train")] == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(UserError, match="there is no folder"):
        run(config, **{**settings, "run": {"name": "tuned-again"}})


def test_a_corrupt_tokenizer_is_no_beginning(config):
    first = run(config)
    path = opened(first).folder / "tokenizer.json"
    path.write_bytes(path.read_bytes() + b" ")  # still valid JSON
    with pytest.raises(Corrupt, match=r"tokenizer\.json is corrupt"):
        run(config, run={"name": "tuned"}, train={"init_from": str(first)})


def test_a_file_name_may_be_invalid_utf8(config, tmp_path):
    odd = [str(tmp_path / f"caf\udce9.{side}") for side in ("en", "de")]
    for path, source in zip(odd, config.data.train, strict=True):
        shutil.copy(source, path)
    with open(odd[0], "a") as english, open(odd[1], "a") as german:  # one dropped pair, so that a report names the file
        english.write("\n")
        german.write("x\n")
    cleaning = json.loads((run(config, data={"train": odd}) / "cleaning.json").read_text(encoding="utf-8"))
    (example,) = cleaning["examples"]["empty source"]
    assert "caf\udce9.en" in example["where"]


def test_weights_of_another_size_are_no_beginning(config):
    first = run(config)
    with pytest.raises(UserError, match=r"shape|on one side only"):
        run(config, run={"name": "tuned"}, model={"d_ff": 64}, train={"init_from": str(first)})


def test_the_largest_batch_is_tried_first_and_leaves_no_trace(config, monkeypatch):
    settings = {"model": {"dropout": 0.2}, "train": {"batch_tokens": 300, "log_every": 2}}
    sizes = []
    monkeypatch.setattr(loop, "try_batch", lambda learner, batch, *rest: sizes.append(batch.cells))
    real = loop.train_step

    def watched(learner, update, *rest):
        sizes.extend(batch.cells for batch in update.batches)
        return real(learner, update, *rest)

    monkeypatch.setattr(loop, "train_step", watched)
    untried = run(config, run={"name": "untried"}, **settings)
    assert sizes[0] == max(sizes) and len(sizes) > 6
    monkeypatch.undo()
    tried = run(config, **settings)
    assert largest_difference(weights(tried), weights(untried)) == 0


def test_memory_that_runs_out_while_an_epoch_is_planned_is_no_matter_of_the_batch_size(config, monkeypatch):
    def exhausted(*arguments):
        raise MemoryError

    monkeypatch.setattr("mt.data.corpus.PreparedCorpus.epoch", exhausted)
    with pytest.raises(MemoryError):
        run(config)


def test_memory_that_runs_out_is_told_before_the_first_update(config, monkeypatch):
    def exhausted(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(step, "label_smoothed_loss", exhausted)
    with pytest.raises(UserError, match=r"train\.batch_tokens=4000: lower it"):
        run(config)
    assert not (Path(config.run.root) / "run" / "checkpoints").exists()


def test_a_run_whose_checkpoints_are_gone_does_not_begin_again_by_itself(config):
    folder = run(config)
    before = (folder / "metrics.jsonl").read_bytes()
    shutil.move(folder / "checkpoints", folder / "elsewhere")
    with pytest.raises(UserError, match=r"has saved checkpoints, but .* has none: put them back"):
        run(config, train={"max_updates": 7})
    assert (folder / "metrics.jsonl").read_bytes() == before
    shutil.move(folder / "elsewhere", folder / "checkpoints")
    run(config, train={"max_updates": 7})
    assert [line["update"] for line in records(folder, "train")] == [1, 2, 3, 4, 5, 6, 7]


def test_the_index_follows_the_state_that_a_run_resumes_from(config):
    """The index is corrected after a kill between a checkpoint and the index, and if the best checkpoint is corrupt."""
    settings = {"optim": {"peak_lr": 1e-12}, "train": {"max_updates": 3, "validate_every": 1, "average": 1}}
    folder = run(config, **settings)  # does not improve after its first update
    store = store_of(folder)
    assert store.index()["best"] == "update-0000001"
    store.set(best="update-0000003", last="update-0000002")
    settings["train"]["max_updates"] = 4
    run(config, **settings)
    assert (store.index()["best"], store.index()["last"]) == ("update-0000001", "update-0000004")
    (store.folder / "update-0000001" / "model.safetensors").write_bytes(b"")
    settings["train"]["max_updates"] = 5
    run(config, **settings)
    assert store.index()["best"] == "update-0000005"
    assert "the best checkpoint, update-0000001, is corrupt or missing" in (folder / "train.log").read_text()
    assert opened(folder).load_model()


def test_a_fine_tuning_resumes_from_the_command_line_when_its_beginning_is_gone(config, capsys):
    first = run(config)
    files = [f"data.{split}=[{','.join(getattr(config.data, split))}]" for split in ("train", "dev")]
    places = [
        f"run.root={config.run.root}",
        f"data.prepared_dir={config.data.prepared_dir}",
        f"train.init_from={first}",
    ]
    common = ["train", "data=files", *files, *places, "train.device=cpu", "train.precision=fp32"]
    common += ["decode.max_length_a=0"]
    assert main([*common, "run.name=tuned", "train.max_updates=2"]) == 0
    shutil.rmtree(first)
    assert main([*common, "run.name=tuned", "train.max_updates=3"]) == 0
    assert opened(first.parent / "tuned").config.model.d_model == 16
    capsys.readouterr()
    assert main([*common, "run.name=other"]) == 2
    assert f"train.init_from={first}: there is no folder" in capsys.readouterr().err
