"""Measures mt in its own process, and prints one line of JSON.

python ours.py train WORK RAW SIZE SECONDS PRECISION THREADS
python ours.py decode RUN TEXT ENGINE THREADS SENTENCEPIECE_MODEL
python ours.py limit PRECISION THREADS
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from workload import SIZES, UPDATE_TOKENS, VOCABULARY, Numbers, rates

WARM_UP = 3  # updates
SQUARE = 1024  # rows and columns of the matrices that measure the limit


def train(work: str, raw: str, size: str, seconds: str, precision: str, threads: str) -> Numbers:
    """Train for some seconds after a few warm-up updates, and return the speed and the loss."""
    from mt.commands import COMMANDS
    from mt.config.compose import compose
    from mt.config.schema import Precision, TrainConfig
    from mt.corpora.locate import locate
    from mt.data.preparation import prepare
    from mt.runtime.device import start_runtime
    from mt.training.metrics import TrainingMetrics
    from mt.training.schedule import learning_rate
    from mt.training.state import TrainerState
    from mt.training.step import Learner, train_step, try_batch

    overrides = [f"model={size}", f"tokenizer.model={work}/spm.model", f"data.raw_dir={raw}"]
    config: TrainConfig = compose(COMMANDS["train"], overrides)
    raised = replace(config.train, update_tokens=UPDATE_TOKENS, precision=Precision(precision), threads=int(threads))
    model = replace(config.model, dropout=SIZES[size].dropout)
    config = replace(config, data=replace(config.data, prepared_dir=f"{work}/prepared"), model=model, train=raised)
    runtime = start_runtime(config.train.device, config.train.precision, config.train.threads)
    corpus = prepare(locate(config.data, silent), config.data, config.tokenizer, config.seed, silent)
    learner, state = Learner.create(config, corpus.tokenizers, runtime, None), TrainerState()
    epoch = corpus.epoch(1, config.seed, UPDATE_TOKENS, sampling=0.0)
    try_batch(learner, epoch.largest(config.train.batch_tokens, 0, 1), config.optim.label_smoothing)
    updates = (update for _ in count() for update in epoch.updates(0, config.train.batch_tokens, 0, 1))
    sentences = source_tokens = 0
    for update in updates:
        lr = learning_rate(state.update + 1, config.optim, config.model.d_model, config.train.max_updates)
        state.advance(train_step(learner, update, lr, config.optim), update.target_tokens, len(epoch), 0.0)
        if state.update == WARM_UP:
            state.metrics = TrainingMetrics()
            began = time.monotonic()
        if state.update > WARM_UP:
            sentences += sum(len(batch.sentences) for batch in update.batches)
            source_tokens += sum(batch.tokens - batch.target_tokens for batch in update.batches)
            if (passed := time.monotonic() - began) > float(seconds):
                break
    tokens = state.metrics.all_target_tokens
    return {
        "target_tokens_per_second": tokens / passed,
        "sentences_per_second": sentences / passed,
        "gflops": training_flops(size, source_tokens, int(tokens)) / passed / 1e9,
        "loss": state.metrics.loss / tokens,
    }


def silent(line: str) -> None:
    """A log that discards its lines."""


def training_flops(size: str, source_tokens: int, target_tokens: int) -> float:
    """FLOPs of the products with weights: per weight and token, 2 forward and 4 backward. Attention is not counted."""
    shape = SIZES[size]
    attention, feed_forward = 4 * shape.width**2, 2 * shape.width * shape.inner
    encoder = shape.layers * (attention + feed_forward)
    across = shape.layers * 2 * shape.width**2  # keys and values of the source
    decoder = shape.layers * (attention + 2 * shape.width**2 + feed_forward) + VOCABULARY * shape.width
    return 6.0 * (source_tokens * (encoder + across) + target_tokens * decoder)


def decode(run: str, text: str, engine: str, threads: str, model: str) -> Numbers:
    """Measure the translation of a file after a warm-up. `engine`: torch, or ctranslate2 for the run's export."""
    from mt.config.schema import DecodeConfig, Precision
    from mt.decoding.exported import ExportedTranslator
    from mt.decoding.translator import Translator
    from mt.run_folder import find_checkpoint

    tool: Translator | ExportedTranslator
    if engine == "torch":
        tool = Translator.load(run, DecodeConfig(), "cpu", Precision.fp32, int(threads))
    else:
        name = f"{find_checkpoint(run).name}-ctranslate2-float32"
        tool = ExportedTranslator.load(Path(run) / "exports" / name, DecodeConfig(), int(threads))
    lines = Path(text).read_text(encoding="utf-8").splitlines()
    tool.translate_nbest(lines[:32])
    began = time.monotonic()
    found = [hypotheses[0].text for hypotheses in tool.translate_nbest(lines)]
    return rates(found, time.monotonic() - began, Path(model))


def limit(precision: str, threads: str) -> Numbers:
    """The best rate of many large matrix products."""
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
