"""What of mt is measured, in a process of its own: prints one line of JSON.

python ours.py train WORK RAW SIZE SECONDS PRECISION THREADS
python ours.py decode RUN TEXT ENGINE THREADS SENTENCEPIECE_MODEL
python ours.py limit PRECISION THREADS
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from workload import SIZES, UPDATE_TOKENS, VOCABULARY, Numbers, rates

WARM_UP = 3  # updates
SQUARE = 1024  # of the matrices whose product is the limit


def train(work: str, raw: str, size: str, seconds: str, precision: str, threads: str) -> Numbers:
    """Updates for some seconds, after a few that warm up; speed and, last, the loss."""
    from mt.checkpoint_store import CheckpointStore
    from mt.compose import compose
    from mt.config import Precision, TrainJob
    from mt.data.preparation import prepare
    from mt.data.sources import locate
    from mt.reporting.runlog import RunLog
    from mt.runtime.device import start
    from mt.training.run import start_run
    from mt.training.state import Recent
    from mt.training.update import train_update, try_largest_batch

    job = compose("train", [f"model={size}", f"tokenizer.model={work}/spm.model", f"data.raw_dir={raw}"])
    assert isinstance(job, TrainJob)
    raised = replace(job.train, update_tokens=UPDATE_TOKENS, precision=Precision(precision), threads=int(threads))
    model = replace(job.model, dropout=SIZES[size].dropout)
    job = replace(job, data=replace(job.data, prepared_dir=f"{work}/prepared"), model=model, train=raised)
    log = RunLog(None, console=False)
    runtime = start(job.train.device, job.train.precision, job.train.threads)
    prepared = prepare(locate(job.data, log.info), job.data, job.tokenizer, job.seed, log.info)
    run = start_run(Path(work), job, prepared, runtime, log, CheckpointStore(Path(work) / "none"), None, None)
    epoch = prepared.epoch(0.0, job.seed, 1)
    plan = epoch.plan(job.seed, 1, UPDATE_TOKENS)
    try_largest_batch(run, epoch, plan)
    updates = cycle(plan)
    for _ in range(WARM_UP):
        train_update(run, epoch, next(updates))
    run.recent = Recent()
    sentences, source_tokens, began = 0, 0, time.monotonic()
    while (passed := time.monotonic() - began) < float(seconds):
        update = next(updates)
        train_update(run, epoch, update)
        sentences += len(update)
        source_tokens += int(epoch.source_lengths[update].sum())
    tokens = run.recent.all_target_tokens
    return {
        "target_tokens_per_second": tokens / passed,
        "sentences_per_second": sentences / passed,
        "gflops": training_flops(size, source_tokens, int(tokens)) / passed / 1e9,
        "loss": run.recent.smoothed / tokens,
    }


def training_flops(size: str, source_tokens: int, target_tokens: int) -> float:
    """Of the products with weights: 2 a weight and token forward, twice that backward. Attention's are not counted."""
    shape = SIZES[size]
    attention, feed_forward = 4 * shape.width**2, 2 * shape.width * shape.inner
    encoder = shape.layers * (attention + feed_forward)
    across = shape.layers * 2 * shape.width**2  # keys and values of the source
    decoder = shape.layers * (attention + 2 * shape.width**2 + feed_forward) + VOCABULARY * shape.width
    return 6.0 * (source_tokens * (encoder + across) + target_tokens * decoder)


def decode(run: str, text: str, engine: str, threads: str, model: str) -> Numbers:
    """The file's translation, everything loaded and warm."""
    from mt.checkpoint import Checkpoint
    from mt.config import DecodeConfig, Precision
    from mt.decoding.exported import ExportedTranslator, find_export
    from mt.decoding.translation import Engine

    checkpoint = Checkpoint.open(run)
    tool: Engine
    if engine == "torch":
        from mt.decoding.translator import Translator

        tool = Translator.load(checkpoint.folder, DecodeConfig(), "cpu", Precision.fp32, int(threads))
    else:
        export = find_export(checkpoint)
        assert export, f"{run} is not exported"
        tool = ExportedTranslator.load(export, DecodeConfig(), int(threads))
    lines = Path(text).read_text(encoding="utf-8").splitlines()
    tool.translate_nbest(lines[:32])
    began = time.monotonic()
    found = [hypotheses[0].text for hypotheses in tool.translate_nbest(lines)]
    return rates(found, time.monotonic() - began, Path(model))


def limit(precision: str, threads: str) -> Numbers:
    """The rate of large matrix products, the best of many."""
    import torch

    torch.set_num_threads(int(threads))
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    one, other = (torch.randn(SQUARE, SQUARE).to(kind) for _ in range(2))
    best, end = float("inf"), time.monotonic() + 5
    while time.monotonic() < end:
        began = time.monotonic()
        one @ other
        best = min(best, time.monotonic() - began)
    return {"gflops": 2 * SQUARE**3 / best / 1e9}


if __name__ == "__main__":
    commands: dict[str, Callable[..., Numbers]] = {"train": train, "decode": decode, "limit": limit}
    print(json.dumps(commands[sys.argv[1]](*sys.argv[2:])))
