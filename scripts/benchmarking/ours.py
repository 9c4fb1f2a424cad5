"""What of mt is measured, run in a process of its own: prints one line of JSON.

python ours.py train WORK SIZE SECONDS PRECISION THREADS
python ours.py decode RUN TEXT ENGINE THREADS
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from workload import SIZES, UPDATE_TOKENS

from mt.compose import compose


def train(work: str, size: str, seconds: str, precision: str, threads: str) -> dict[str, float]:
    """Updates for some seconds, after a few that warm up; speed and, last, the loss."""
    from mt.checkpoint_store import CheckpointStore
    from mt.config import TrainJob
    from mt.data.preparation import prepare
    from mt.data.sources import locate
    from mt.reporting.runlog import RunLog
    from mt.runtime.device import start
    from mt.training.run import start_run
    from mt.training.state import Recent
    from mt.training.update import train_update, try_largest_batch

    shape = SIZES[size]
    job = compose(
        "train", ["data=multi30k", f"model={size}", f"tokenizer.model={work}/spm.model", "tokenizer.vocab_size=8000"]
    )
    assert isinstance(job, TrainJob)
    job = replace(
        job,
        data=replace(job.data, prepared_dir=f"{work}/prepared"),
        model=replace(job.model, dropout=shape.dropout),
        train=replace(
            job.train, update_tokens=UPDATE_TOKENS, precision=type(job.train.precision)(precision), threads=int(threads)
        ),
    )
    log = RunLog(None, console=False)
    runtime = start(job.train.device, job.train.precision, job.train.threads)
    prepared = prepare(locate(job.data, log.info), job.data, job.tokenizer, job.seed, log.info)
    run = start_run(Path(work), job, prepared, runtime, log, CheckpointStore(Path(work) / "none"), None, None)
    epoch = prepared.epoch(0.0, job.seed, 1)
    plan = epoch.plan(job.seed, 1, UPDATE_TOKENS)
    try_largest_batch(run, epoch, plan)
    updates = iter(plan * 100)
    for _ in range(3):
        train_update(run, epoch, next(updates))
    run.recent = Recent()
    began, sentences, count = time.monotonic(), 0, 0
    while time.monotonic() - began < float(seconds):
        update = next(updates)
        train_update(run, epoch, update)
        sentences += len(update)
        count += 1
    passed = time.monotonic() - began
    tokens = run.recent.all_target_tokens
    return {
        "target_tokens_per_second": tokens / passed,
        "sentences_per_second": sentences / passed,
        "updates": count,
        "loss": run.recent.smoothed / tokens,
    }


if __name__ == "__main__":
    print(json.dumps({"train": train}[sys.argv[1]](*sys.argv[2:])))
