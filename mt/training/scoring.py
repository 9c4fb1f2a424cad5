"""The end of a run: its model scored on the test sets, for the first and only time."""

from pathlib import Path

from mt.checkpoint import Checkpoint
from mt.checkpoint_store import checkpoint_name
from mt.data.cleaning import overlap
from mt.data.sources import Sources
from mt.data.text import read_pairs
from mt.decoding.translator import Translator
from mt.evaluation.evaluate import EvaluationSet, own_test_sets, score_sets
from mt.evaluation.metrics import table
from mt.runtime import distributed
from mt.training.run import Run


def score_run(run: Run, sources: Sources) -> None:
    """Score the average of the checkpoints, or the best one."""
    log, options = run.log, run.job.decode
    folder = Path(distributed.on_leader(lambda: str(_model_to_score(run))))
    checkpoint = Checkpoint.open(folder)
    model = checkpoint.load_model().to(run.runtime.device)
    translator = Translator(model, run.prepared.tokenizers, options, run.runtime.in_float32())
    sets = distributed.on_leader(lambda: own_test_sets(sources, log.info))
    for name, chosen in sets.items() if distributed.rank() == 0 else ():
        pairs = zip(chosen.sources, chosen.references, strict=True)
        if repeated := overlap(read_pairs(sources.train, run.job.data.invalid_utf8), pairs):
            log.warning(f"{name}: {repeated} of {len(chosen.sources)} pairs occur in the training text")
    if not sets:
        sets = {"dev": EvaluationSet(run.prepared.dev_source, run.prepared.dev_target)}
    log.info(f"scoring {checkpoint.folder.name} with beam {options.beam_size}, fp32")
    scores = score_sets(translator, checkpoint.folder.name, sets, run.job.data.target, run.folder, "scores", log.info)
    if distributed.rank() == 0:
        for line in table(scores).splitlines():
            log.info(line)
        run.store.set(scored=checkpoint_name(run.progress.update))
        results = ", ".join(f"{name} {scores[name].sacrebleu:.2f}" for name in scores)
        log.info(f"done: sacreBLEU {results}; model {checkpoint.folder}")


def _model_to_score(run: Run) -> Path:
    """The averaged checkpoint, made now, else the best one; damaged ones are left out, and that is told."""
    train, store = run.job.train, run.store
    wanted = [checkpoint_name(update) for update in run.progress.to_average(train.average, train.average_of)]
    names = [name for name in wanted if store.sound(name)]
    for name in wanted:
        if name not in names:
            run.log.warning(f"{store.folder / name} is damaged or gone: the average goes without it")
    if len(names) > 1:
        folder = store.average(names)
        run.log.info(f"averaged the weights of {len(names)} checkpoints, {names[0]} to {names[-1]}")
        return folder
    store.set(average=None)
    index = store.index()
    best = index.get("best", index["last"])
    if not store.sound(best):
        run.log.warning(f"{store.folder / best}, the best checkpoint, is damaged or gone: the last one is scored")
        store.set(best=index["last"])
        best = index["last"]
    return store.folder / best
