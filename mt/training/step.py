"""One optimizer step: the gradient of an update over all processes, and the weight update."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from mt.checkpoint.folder import Checkpoint
from mt.config.schema import OptimConfig, TrainConfig
from mt.data.batching import Batch, Update
from mt.model.transformer import Transformer
from mt.runtime import distributed
from mt.runtime.device import Runtime, get_random_states, seed_process, set_random_states
from mt.tokenizers.pair import Tokenizers
from mt.training.loss import label_smoothed_loss
from mt.training.schedule import make_optimizer


@dataclass(frozen=True)
class Learner:
    """A model in training mode with its optimizer and gradient scaler: everything that a step changes."""

    model: Transformer
    ddp_model: nn.Module  # the same model, wrapped by DDP if there are several processes
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    runtime: Runtime

    @classmethod
    def create(
        cls, config: TrainConfig, tokenizers: Tokenizers, runtime: Runtime, weights: Checkpoint | None
    ) -> "Learner":
        """A new model, or one with a checkpoint's weights. Seeds the random generators. Raises UserError."""
        torch.manual_seed(config.seed)
        model = Transformer(config.model, tokenizers.source.size, tokenizers.target.size)
        if distributed.world_size() > 1:
            seed_process(config.seed, 0)
        if weights:
            weights.load_into(model)
        model.to(runtime.device).train()
        if config.train.compile:
            model.compile(dynamic=True)  # for sentences of any length
        optimizer = make_optimizer(model, config.optim)
        scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.dtype == torch.float16)
        return cls(model, distributed.data_parallel(model, runtime.device), optimizer, scaler, runtime)


@dataclass(frozen=True)
class StepMetrics:
    """The metrics of one step: sums over this process's share, and the gradient norm of the whole update."""

    losses: list[float]  # label-smoothed, one per batch
    nll: float
    target_tokens: int
    tokens: int  # source and target together
    cells: int  # tokens and padding
    grad_norm: float  # before clipping

    @property
    def finite(self) -> bool:
        """Whether the gradient was finite, and so was applied."""
        return math.isfinite(self.grad_norm)


def train_step(learner: Learner, update: Update, lr: float, optim: OptimConfig) -> StepMetrics:
    """Take one optimizer step. If the gradient is not finite, all processes skip the step.

    The summed loss is divided by the target tokens of all processes, and multiplied by the number of processes, because
    DDP averages their gradients (in the backward pass of the last batch).
    """
    model, ddp_model, optimizer, scaler = learner.model, learner.ddp_model, learner.optimizer, learner.scaler
    losses = []
    for number, batch in enumerate(update.batches, start=1):
        moved = batch.to(learner.runtime.device)
        with distributed.sync_gradients(ddp_model, wanted=number == len(update.batches)):
            with learner.runtime.autocast():
                states = ddp_model(moved.source, moved.target_in)
                output, smoothing = model.output.weight, optim.label_smoothing
                loss = label_smoothed_loss(states, output, moved.target_out, smoothing, moved.non_padding)
            scaler.scale(loss.smoothed * distributed.world_size() / update.target_tokens).backward()
        losses.append(loss)
    for group in optimizer.param_groups:
        group["lr"] = lr
    scaler.unscale_(optimizer)
    grad_norm = float(nn.utils.clip_grad_norm_(model.parameters(), optim.clip_norm or math.inf))
    if math.isfinite(grad_norm):
        scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    batches = [batch for batch in update.batches if batch.target_tokens]
    # The losses are read only now, because reading one makes the CPU wait for the GPU
    return StepMetrics(
        losses=[float(loss.smoothed.detach()) for loss in losses],
        nll=sum(float(loss.nll) for loss in losses),
        target_tokens=sum(batch.target_tokens for batch in batches),
        tokens=sum(batch.tokens for batch in batches),
        cells=sum(batch.cells for batch in batches),
        grad_norm=grad_norm,
    )


def try_batch(learner: Learner, batch: Batch, label_smoothing: float) -> None:
    """Run the batch that needs the most memory, so that memory runs out now if ever; changes no state of the learner.

    Memory for the future optimizer state is reserved meanwhile. DDP reorders its buckets after the first all_reduce;
    because that happens here, all updates, even of a resumed run, sum gradients in the same order.
    """
    random_states = get_random_states(learner.runtime.device)
    parameters = list(learner.model.parameters())
    reserved = [] if learner.optimizer.state else [torch.empty_like(p) for p in parameters for _ in range(2)]
    batch = batch.to(learner.runtime.device)
    with learner.runtime.autocast():
        states = learner.ddp_model(batch.source, batch.target_in)
        output = learner.model.output.weight
        loss = label_smoothed_loss(states, output, batch.target_out, label_smoothing, batch.non_padding)
    learner.scaler.scale(loss.smoothed / batch.tokens).backward()
    del reserved
    learner.optimizer.zero_grad()
    set_random_states(random_states, learner.runtime.device)
