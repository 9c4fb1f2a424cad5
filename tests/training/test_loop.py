"""Training end to end on a toy language, and what must not change a number: batch limits, validation, restarts."""

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
from tests_support import raw_events, toy_job, toy_pairs, write_pairs

from mt.checkpoint import Checkpoint
from mt.checkpoint_store import CheckpointStore
from mt.cli import main
from mt.config import (
    Device,
    EvaluateJob,
    Norm,
    Optimizer,
    Positions,
    Precision,
    Schedule,
)
from mt.data.download import DataUnavailable
from mt.data.module import Prepared
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.evaluation.evaluate import evaluate_command
from mt.runtime.files import only_writer
from mt.runtime.stop import Interrupted
from mt.training import loop, update
from mt.training.loop import train


@pytest.fixture
def job(tmp_path):
    return toy_job(tmp_path)


PRECISIONS = {"plain": "fp32", "bf16": "bf16"}  # what auto chooses, by processor


def run(job, **changes):
    """Train with changes given as section={key: value}; the run's folder."""
    job = replace(job, **{section: replace(getattr(job, section), **values) for section, values in changes.items()})
    threads = torch.get_num_threads()
    try:
        assert train(job) == 0
    finally:
        torch.set_num_threads(threads)
    return Path(job.run.root) / job.run.name


def weights(folder):
    store = CheckpointStore(folder / "checkpoints")
    return Checkpoint.open(store.folder / store.index()["last"]).load_weights()


def records(folder, kind):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def largest_difference(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("norm", list(Norm))
def test_it_learns_what_it_was_shown_and_everything_is_written_down(job, norm, tmp_path, capsys):
    shown = write_pairs(tmp_path, "shown", toy_pairs(20))
    folder = run(
        job,
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
    assert "\r" not in log and "20 of 20 pairs occur in the training text" in log
    assert Checkpoint.open(folder).folder.name == "average-0000240-of-2"
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
    evaluate_command(EvaluateJob(checkpoint=str(folder), output=str(evaluated), decode=job.decode, device=Device.cpu))
    again = json.loads((evaluated / "scores.json").read_text())
    assert again["shown"] == scores["shown"]
    assert "shown" in capsys.readouterr().out
    evaluate_command(EvaluateJob(checkpoint=str(folder), all_checkpoints=True, decode=job.decode, device=Device.cpu))
    assert (folder / "scores-update-0000120.json").exists()


def test_validations_bleu_is_what_evaluate_gives_for_that_checkpoint(job):
    folder = run(job, train={"max_updates": 60, "validate_beam": 2})
    logged = max(record["bleu_beam2"] for record in records(folder, "validation"))  # the best one is scored
    assert json.loads((folder / "scores.json").read_text())["dev"]["sacrebleu"] == pytest.approx(logged, abs=0.005)


@pytest.mark.parametrize(
    ("name", "precision", "tolerance", "relative"),
    [("sgd", "fp32", 1e-6, 1e-4), ("adam", "fp32", 5e-4, 1e-4), ("sgd", "bf16", 1e-3, 1e-3)],
)
def test_the_batch_limit_changes_no_update(job, name, precision, tolerance, relative):
    job = replace(job, train=replace(job.train, precision=Precision(precision)))
    optim = {"name": Optimizer(name), "peak_lr": 0.1 if name == "sgd" else 0.001, "eps": 1e-6}
    whole, *others = [
        run(job, run={"name": f"run{limit}"}, optim=optim, train={"batch_tokens": limit}) for limit in (4000, 250, 90)
    ]
    losses = [line["loss"] for line in records(whole, "train")]
    for other in others:
        assert largest_difference(weights(whole), weights(other)) < tolerance
        assert [line["loss"] for line in records(other, "train")] == pytest.approx(losses, rel=relative)
    assert (
        largest_difference(
            weights(whole), weights(run(job, run={"name": "seed"}, optim=optim, train={"max_updates": 4}))
        )
        > tolerance
    )


def test_validating_and_saving_often_changes_nothing(job):
    dropout = {"dropout": 0.2}
    often = run(job, model=dropout, train={"validate_every": 1, "save_every": 1})
    never = run(job, run={"name": "never"}, model=dropout)
    assert largest_difference(weights(often), weights(never)) == 0
    assert [r["loss"] for r in records(often, "train")] == [r["loss"] for r in records(never, "train")]


@pytest.mark.parametrize(("stop_at", "precision"), [(17, "fp32"), (18, "fp32"), (17, "bf16")])
def test_stopped_and_continued_equals_undisturbed(job, stop_at, precision, monkeypatch):
    """Stopped within the sixth epoch, and exactly at its end."""
    job = replace(job, train=replace(job.train, precision=Precision(precision)))
    settings = {
        "model": {"dropout": 0.2},
        "train": {"max_updates": 30, "average": 2, "update_tokens": 700, "log_every": 4},
    }
    undisturbed = run(job, run={"name": "undisturbed"}, **settings)
    real = loop.train_update

    def interrupt(running, epoch, update):
        real(running, epoch, update)
        if running.progress.update == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop, "train_update", interrupt)
    changed = replace(job, model=replace(job.model, dropout=0.2), train=replace(job.train, **settings["train"]))
    assert train(changed) == 128 + 15
    monkeypatch.undo()
    torch.manual_seed(99)
    continued = run(job, **settings)
    assert largest_difference(weights(undisturbed), weights(continued)) == 0
    for kind in ("train", "validation"):
        one, other = records(undisturbed, kind), records(continued, kind)
        assert [r["update"] for r in one] == [r["update"] for r in other]
        assert [r["nll"] for r in one] == [r["nll"] for r in other]
    assert [r["update"] for r in records(undisturbed, "validation")] == list(range(3, 31, 3))
    assert raw_events(continued) == raw_events(undisturbed) != []
    assert json.loads((undisturbed / "scores.json").read_text()) == json.loads((continued / "scores.json").read_text())


def test_a_finished_run_is_left_alone_and_a_larger_budget_continues_it(job, capsys):
    folder = run(job)
    stamp = (folder / "scores.json").stat().st_mtime_ns
    run(job)
    assert "is finished" in capsys.readouterr().err
    assert (folder / "scores.json").stat().st_mtime_ns == stamp
    run(job, train={"max_updates": 7})
    assert records(folder, "train")[-1]["update"] == 7
    assert (folder / "scores.json").stat().st_mtime_ns > stamp
    assert "train.max_updates: 5 -> 7" in (folder / "train.log").read_text()


def test_a_run_that_cools_down_keeps_its_budget(job):
    settings = {"optim": {"cooldown": 0.5}, "train": {"max_updates": 4}}
    folder = run(job, **settings)
    assert [line["learning_rate"] for line in records(folder, "train")] == pytest.approx([0.01, 0.01, 0.01, 0.005])
    settings["train"] = {"max_updates": 5}
    with pytest.raises(UserError, match=r"train\.max_updates: 4 -> 5"):
        run(job, **settings)


def test_other_settings_under_the_same_name_are_refused_with_the_difference(job):
    run(job)
    with pytest.raises(UserError, match=r"model\.d_ff: 32 -> 64"):
        run(job, model={"d_ff": 64})


def test_another_text_under_an_unfinished_run_is_refused(job):
    run(job)
    path = Path(job.data.train[0])
    path.write_text(path.read_text(encoding="utf-8").replace("dog", "bird", 1), encoding="utf-8")
    with pytest.raises(UserError, match="prepared corpus"):
        run(job, train={"max_updates": 9})


def test_a_start_that_failed_does_not_take_the_name(job):
    with pytest.raises(UserError, match=r"tokenizer\.vocab_size=20"):
        run(job, tokenizer={"vocab_size": 20})
    run(job)


def test_a_run_has_one_writer(job, monkeypatch, capsys):
    monkeypatch.setattr(loop, "only_writer", partial(only_writer, patience=0.3))
    held = Path(job.run.root) / "run"
    with only_writer(held), pytest.raises(UserError, match=f"process {os.getpid()} on .* is writing"):
        run(job)
    assert "waiting up to 0 seconds for its end" in capsys.readouterr().err
    run(job)


def test_a_held_out_part_is_scored_and_is_no_leak(job):
    folder = run(job, data={"dev": [], "test": {}})
    assert set(json.loads((folder / "scores.json").read_text())) == {"dev"}
    assert "occur in the training text" not in (folder / "train.log").read_text()
    before = json.loads((folder / "scores.json").read_text())
    (folder / "scores.json").unlink()
    evaluate_command(EvaluateJob(checkpoint=str(folder), decode=job.decode, device=Device.cpu))
    assert json.loads((folder / "scores.json").read_text()) == before


def test_time_that_runs_out_still_ends_with_a_validation(job):
    folder = run(job, train={"max_updates": None, "max_minutes": 0.01, "save_every": 1, "validate_every": 10**6})
    last = records(folder, "train")[-1]["update"]
    assert [record["update"] for record in records(folder, "validation")] == [last]


def test_one_bad_test_set_does_not_cost_the_others(job):
    extra = Path(job.data.test["toy"][0]).with_name("extra.tsv")
    extra.write_text("a dog\tein Hund\n", encoding="utf-8")
    changed = replace(job, data=replace(job.data, test={**job.data.test, "extra": [str(extra)]}))
    assert set(json.loads((run(changed) / "scores.json").read_text())) == {"dev", "toy", "extra"}
    extra.unlink()
    options = {"checkpoint": str(Path(job.run.root) / "run"), "decode": job.decode, "device": Device.cpu}
    evaluate_command(EvaluateJob(output=str(extra.parent / "again"), **options))
    assert set(json.loads((extra.parent / "again" / "scores.json").read_text())) == {"dev", "toy"}


def test_budgets_by_epochs_and_patience(job):
    folder = run(job, run={"name": "epochs"}, train={"max_updates": None, "max_epochs": 2, "update_tokens": 700})
    updates = [line["update"] for line in records(folder, "train")]
    validated = [line["update"] for line in records(folder, "validation")]
    assert validated == [updates[-1] // 2, updates[-1]]
    folder = run(
        job,
        run={"name": "patience"},
        optim={"peak_lr": 1e-12},
        train={"max_updates": 50, "validate_every": 1, "patience": 3},
    )
    progress = Checkpoint.open(CheckpointStore(folder / "checkpoints").folder / "update-0000004").load_state()[
        "progress"
    ]
    assert progress["validations_without_better"] == 3


def test_only_needed_checkpoints_are_kept(job):
    folder = run(job, train={"max_updates": 8, "validate_every": 1, "average": 3, "save_every": 1})
    index = CheckpointStore(folder / "checkpoints").index()
    kept = set(CheckpointStore(folder / "checkpoints").names())
    assert kept == {"update-0000006", "update-0000007", "update-0000008", index["best"]}


def test_a_gradient_that_is_no_number_is_skipped_and_many_end_the_run(job, monkeypatch):
    real = update.label_smoothed_loss
    broken: set[int] = {4}  # the first is that of the largest batch, tried before the first update
    calls = 0

    def sometimes(states, *arguments):
        nonlocal calls
        if states.requires_grad:
            calls += 1
        found = real(states, *arguments)
        return replace(found, smoothed=found.smoothed * math.nan) if states.requires_grad and calls in broken else found

    monkeypatch.setattr(update, "label_smoothed_loss", sometimes)
    folder = run(job)
    assert "update 3 skipped" in (folder / "train.log").read_text()
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(folder).values())
    broken |= set(range(8, 40))
    with pytest.raises(UserError, match=r"10 updates in a row.*train\.en and train\.de, line \d+;"):
        run(job, run={"name": "broken"}, train={"max_updates": 30, "save_every": 1})
    assert weights(Path(job.run.root) / "broken")
    named = (Path(job.run.root) / "broken" / "not_finite.txt").read_text(encoding="utf-8").splitlines()
    assert len(set(named)) == len(named) > 4


def test_training_goes_without_its_test_files(job, monkeypatch):
    """They are asked for after the last update, and where they are missing the development set is scored."""
    real = loop.locate
    checkpoints = Path(job.run.root) / "run" / "checkpoints"

    def missing():
        assert (checkpoints / "update-0000005").exists()
        raise DataUnavailable("gone")

    monkeypatch.setattr(loop, "locate", lambda *arguments: replace(real(*arguments), find_tests={"toy": missing}))
    folder = run(job)
    assert set(json.loads((folder / "scores.json").read_text())) == {"dev"}
    assert "toy is not scored: gone" in (folder / "train.log").read_text()


def test_hypotheses_do_not_depend_on_the_references(job):
    folder = run(job)
    for path in job.data.test["toy"][1:]:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        Path(path).write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")
    before = (folder / "hypotheses" / "scores.toy.de").read_bytes()
    evaluate_command(EvaluateJob(checkpoint=str(folder), decode=job.decode, device=Device.cpu))
    assert (folder / "hypotheses" / "scores.toy.de").read_bytes() == before


def test_everything_needed_is_in_the_checkpoint(job, tmp_path):
    folder = run(job)
    lines = [source for source, _ in toy_pairs(5)]
    expected = Translator.load(folder, device="cpu").translate(lines)
    moved = tmp_path / "elsewhere"
    shutil.copytree(Checkpoint.open(folder).folder, moved)
    shutil.rmtree(job.data.prepared_dir)
    shutil.rmtree(folder)
    assert Translator.load(moved, device="cpu").translate(lines) == expected
    source, target = job.data.test["toy"]
    before = sorted(path for path in tmp_path.rglob("*"))
    evaluate_command(EvaluateJob(checkpoint=str(moved), input=source, reference=target, device=Device.cpu))
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_bf16_products_train_too_and_are_another_setting(job):
    folder = run(job, train={"precision": Precision.bf16})
    assert all(tensor.dtype == torch.float32 for tensor in weights(folder).values())
    losses = [line["loss"] for line in records(folder, "train")]
    exact = [
        line["loss"] for line in records(run(job, run={"name": "exact"}, train={"precision": Precision.fp32}), "train")
    ]
    assert losses == pytest.approx(exact, rel=0.02) and losses != exact


@pytest.mark.auto
def test_auto_trains_in_the_type_that_the_processor_is_fast_at(job, processor):
    folder = run(job, train={"precision": Precision.auto, "max_updates": 2})
    product = {"plain": "float32", "bf16": "bfloat16"}[processor]
    assert f" {product} products" in (folder / "train.log").read_text()
    named = run(job, run={"name": "named"}, train={"precision": Precision(PRECISIONS[processor]), "max_updates": 2})
    assert largest_difference(weights(folder), weights(named)) == 0


def test_evaluating_files_checks_their_counts(job, tmp_path):
    folder = run(job)
    source, target = job.data.test["toy"]
    options = {"checkpoint": str(folder), "decode": job.decode, "device": Device.cpu}
    evaluate_command(EvaluateJob(input=source, reference=target, **options))
    assert set(json.loads((folder / "scores-files.json").read_text())) == {"test"}
    assert set(json.loads((folder / "scores.json").read_text())) == {"dev", "toy"}
    with pytest.raises(UserError, match=r"40 lines.* 20"):
        evaluate_command(EvaluateJob(input=source, reference=job.data.dev[1], **options))
    with pytest.raises(UserError, match="go together"):
        evaluate_command(EvaluateJob(input=source, **options))


def test_scores_with_other_options_leave_those_of_record_alone(job):
    folder = run(job)
    record = (folder / "scores.json").read_text()
    for name, options in (
        ("", {"decode": replace(job.decode, batch_tokens=100)}),
        ("-other_options", {"decode": replace(job.decode, beam_size=1)}),
        ("-other_options", {"decode": job.decode, "precision": Precision.bf16}),
    ):
        evaluate_command(EvaluateJob(checkpoint=str(folder), device=Device.cpu, **options))
        scores = json.loads((folder / f"scores{name}.json").read_text())
        assert scores["toy"]["decode"]["beam_size"] == options["decode"].beam_size
        assert "input" not in scores["toy"]
        assert name == "" or (folder / "scores.json").read_text() == record
        record = (folder / "scores.json").read_text()


def test_scores_of_different_files_stand_beside_each_other(job, tmp_path):
    folder = run(job)
    source, target = job.data.test["toy"]
    files = [tmp_path / name for name in ("a/news.v1.en", "a/news.v2.en", "b/news.v1.en")]
    for path in (*files, files[0]):
        path.parent.mkdir(exist_ok=True)
        shutil.copy(source, path)
        options = {"checkpoint": str(folder), "decode": job.decode, "device": Device.cpu}
        evaluate_command(EvaluateJob(input=str(path), reference=target, **options))
    scores = json.loads((folder / "scores-files.json").read_text())
    assert [found["input"] for found in scores.values()] == [str(path) for path in files]
    assert list(scores)[:2] == ["news.v1", "news.v2"]
    assert len({(folder / found["hypotheses"]).name for found in scores.values()}) == 3


def test_sources_beyond_the_positions_are_counted_where_they_are_scored(job, tmp_path, capsys):
    shown = write_pairs(tmp_path, "shown", [("a dog " * 60, "ein Hund"), ("a dog", "ein Hund")])
    settings = {"data": {"test": {"shown": shown}}, "model": {"positions": Positions.learned, "max_positions": 41}}
    run(job, **settings)
    assert "shown: 1 sources are longer than the model's positions" in capsys.readouterr().err


def test_a_signal_while_subwords_are_drawn_ends_the_run_at_once(job, monkeypatch):
    job = replace(job, tokenizer=replace(job.tokenizer, sampling=0.1))
    epoch, given_up = Prepared.epoch, []

    def signalled(self, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            return epoch(self, *arguments)
        except Interrupted:
            given_up.append(True)
            raise

    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "epoch", signalled)
        assert train(job) == 143
    assert given_up
    assert records(run(job), "train")[-1]["update"] == 5


def test_a_folder_with_numbers_of_something_else_is_left_alone(job):
    folder = Path(job.run.root) / job.run.name
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"holds metrics\.jsonl, which no run of mt wrote"):
        train(job)
    assert (folder / "metrics.jsonl").read_text() == "{}\n"


def test_fine_tuning_begins_from_weights_and_tokenizers(job, tmp_path, monkeypatch):
    first = run(job, train={"max_updates": 60})
    before = Checkpoint.open(first)
    other = write_pairs(tmp_path, "other", [(source + " zebra", target) for source, target in toy_pairs(300)[250:]])
    settings = {"run": {"name": "tuned"}, "data": {"train": other}, "train": {"init_from": str(first)}}
    tuned = run(job, **settings)
    assert records(tuned, "train")[0]["nll"] < 0.7 * records(first, "train")[0]["nll"]
    assert records(tuned, "train")[0]["learning_rate"] == records(first, "train")[0]["learning_rate"]
    for name in ("tokenizer.model", "tokenizer.json"):
        assert (Checkpoint.open(tuned).folder / name).read_bytes() == (before.folder / name).read_bytes()
    shutil.rmtree(first)
    settings["train"]["max_updates"] = 7
    run(job, **settings)  # goes on from its own
    assert [line["update"] for line in records(tuned, "train")] == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(UserError, match="there is no folder"):
        run(job, **{**settings, "run": {"name": "tuned-again"}})


def test_weights_of_another_size_are_no_beginning(job):
    first = run(job)
    with pytest.raises(UserError, match=r"shape|on one side only"):
        run(job, run={"name": "tuned"}, model={"d_ff": 64}, train={"init_from": str(first)})


def test_the_largest_batch_is_tried_first_and_leaves_no_trace(job, monkeypatch):
    settings = {"model": {"dropout": 0.2}, "train": {"batch_tokens": 300, "log_every": 2}}
    sizes = []
    real = update._backward
    monkeypatch.setattr(
        update,
        "_backward",
        lambda run, epoch, rows, *rest: sizes.append(epoch.size(rows)[1]) or real(run, epoch, rows, *rest),
    )
    tried = run(job, **settings)
    assert sizes[0] == max(sizes)
    monkeypatch.undo()
    monkeypatch.setattr(loop, "try_largest_batch", lambda *arguments: None)
    untried = run(job, run={"name": "untried"}, **settings)
    assert largest_difference(weights(tried), weights(untried)) == 0


def test_memory_that_runs_out_is_told_before_the_first_update(job, monkeypatch):
    def exhausted(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(update, "label_smoothed_loss", exhausted)
    with pytest.raises(UserError, match=r"train\.batch_tokens=4000: lower it"):
        run(job)
    assert not (Path(job.run.root) / "run" / "checkpoints").exists()


def test_a_run_whose_checkpoints_are_gone_does_not_begin_again_by_itself(job):
    folder = run(job)
    before = (folder / "metrics.jsonl").read_bytes()
    shutil.move(folder / "checkpoints", folder / "elsewhere")
    with pytest.raises(UserError, match=r"has saved checkpoints before.*put them back"):
        run(job, train={"max_updates": 7})
    assert (folder / "metrics.jsonl").read_bytes() == before
    shutil.move(folder / "elsewhere", folder / "checkpoints")
    run(job, train={"max_updates": 7})
    assert [line["update"] for line in records(folder, "train")] == [1, 2, 3, 4, 5, 6, 7]


def test_the_index_follows_the_state_that_a_run_goes_on_from(job):
    """A kill between a checkpoint and the index; and a best checkpoint that came to harm."""
    settings = {"optim": {"peak_lr": 1e-12}, "train": {"max_updates": 3, "validate_every": 1, "average": 1}}
    folder = run(job, **settings)  # which gets no better after its first update
    store = CheckpointStore(folder / "checkpoints")
    assert store.index()["best"] == "update-0000001"
    store.set(best="update-0000003", last="update-0000002")
    settings["train"]["max_updates"] = 4
    run(job, **settings)
    assert (store.index()["best"], store.index()["last"]) == ("update-0000001", "update-0000004")
    (store.folder / "update-0000001" / "model.safetensors").write_bytes(b"")
    settings["train"]["max_updates"] = 5
    run(job, **settings)
    assert store.index()["best"] == "update-0000005"
    assert "the best checkpoint, of update 1, is damaged or gone" in (folder / "train.log").read_text()
    assert Checkpoint.open(folder).load_model()


def test_a_fine_tuning_goes_on_from_the_command_line_when_its_beginning_is_gone(job, capsys):
    first = run(job)
    files = [f"data.{split}=[{','.join(getattr(job.data, split))}]" for split in ("train", "dev")]
    places = [f"run.root={job.run.root}", f"data.prepared_dir={job.data.prepared_dir}", f"train.init_from={first}"]
    common = ["train", "data=files", *files, *places, "train.device=cpu", "train.precision=fp32"]
    common += ["decode.max_length_a=0"]
    assert main([*common, "run.name=tuned", "train.max_updates=2"]) == 0
    shutil.rmtree(first)
    assert main([*common, "run.name=tuned", "train.max_updates=3"]) == 0
    assert Checkpoint.open(first.parent / "tuned").config.model.d_model == 16
    capsys.readouterr()
    assert main([*common, "run.name=other"]) == 2
    assert f"train.init_from={first}: there is no folder" in capsys.readouterr().err
