"""One update: the gradient of its sentences over all processes, and the optimizer's step."""

import math

import torch

from mt.data.batching import Indices
from mt.data.module import Epoch
from mt.errors import UserError
from mt.runtime import distributed
from mt.runtime.device import explained_memory
from mt.training.loss import Loss, label_smoothed_loss
from mt.training.run import Run
from mt.training.schedule import learning_rate
from mt.training.state import random_states, set_random_states

GIVE_UP_AFTER = 10  # updates in a row whose gradient is not finite
_NAMED = 3  # of their lines, in the message


def train_update(run: Run, epoch: Epoch, update: Indices) -> None:
    """One optimizer step on the sentences of `update`, shared out over processes and batches as memory asks for.

    The loss is summed and divided by the update's tokens, which are known from the plan. DDP takes the mean over the
    processes, so that each loss is multiplied by their number. A process without a share joins with weight 0.
    """
    recent, tokens, processes = run.recent, epoch.target_tokens(update), distributed.world_size()
    shares = epoch.share(update, run.job.train.batch_tokens, distributed.rank(), processes)
    weight = processes if shares else 0
    batches = shares or [update[:1]]
    losses = []
    for number, rows in enumerate(batches, start=1):
        with distributed.exchanging(run.replica, number == len(batches)):
            losses.append(_backward(run, epoch, rows, weight, tokens))
    finite = _step(run)
    # Only now are numbers asked for: a GPU would otherwise stand still after each batch
    values = [(float(loss.smoothed.detach()), float(loss.nll)) for loss in losses] if shares else []
    sizes = [epoch.size(rows) for rows in shares]
    recent.real_tokens += sum(real for real, _ in sizes)
    recent.padded_tokens += sum(padded for _, padded in sizes)
    own_tokens = float(sum(epoch.target_tokens(rows) for rows in shares))
    recent.all_target_tokens += own_tokens
    if finite:
        recent.updates += 1
        run.progress.target_tokens += tokens
        recent.target_tokens += own_tokens
        recent.smoothed += sum(smoothed for smoothed, _ in values)
        recent.nll += sum(nll for _, nll in values)
    else:
        suspects = [rows for rows, value in zip(shares, values, strict=True) if not math.isfinite(value[0])]
        _skipped(run, suspects, shares)


def _backward(run: Run, epoch: Epoch, rows: Indices, weight: float, tokens: int) -> Loss:
    """Forward and backward pass of one batch."""
    moved = epoch.batch(rows).to(run.runtime.device)
    with explained_memory("train.batch_tokens", run.job.train.batch_tokens):
        with run.runtime.autocast():
            states = run.replica(moved.source, moved.target_in)
            output = run.model.output.weight
            loss = label_smoothed_loss(states, output, moved.target_out, run.job.optim.label_smoothing, moved.real)
        run.scaler.scale(loss.smoothed * weight / tokens).backward()
    return loss


def _step(run: Run) -> bool:
    """Clip and apply the accumulated gradient; False for one that is not finite, which is skipped and counted.

    Every process has the same gradient here and so decides alike.
    """
    progress, optim = run.progress, run.job.optim
    progress.update += 1
    rate = learning_rate(progress.update, optim, run.job.model.d_model, run.job.train.max_updates)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    run.scaler.unscale_(run.optimizer)
    norm = float(torch.nn.utils.clip_grad_norm_(run.model.parameters(), optim.clip_norm or math.inf))
    finite = math.isfinite(norm)
    if finite:
        run.scaler.step(run.optimizer)
        progress.skipped_in_a_row = 0
        run.recent.gradient_norm += norm
    else:
        progress.skipped += 1
        progress.skipped_in_a_row += 1
    run.scaler.update()
    run.optimizer.zero_grad()
    return finite


def _skipped(run: Run, suspects: list[Indices], shares: list[Indices]) -> None:
    """Tell; after GIVE_UP_AFTER in a row end the run, naming the lines of batches whose loss was not finite.

    Where every loss was, and the gradient alone was not, all lines of the update are named.
    """
    progress = run.progress
    run.log.warning(f"update {progress.update} skipped: its gradient is not finite ({progress.skipped} so far)")
    if progress.skipped_in_a_row < GIVE_UP_AFTER:
        return
    own = [[run.prepared.where(int(row)) for rows in batches for row in rows] for batches in (suspects, shares)]
    named, all_lines = ([line for one in each for line in one] for each in zip(*distributed.gather(own), strict=True))
    lines = named or all_lines
    path = run.folder / "not_finite.txt"
    if distributed.rank() == 0:
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    raise UserError(
        f"{GIVE_UP_AFTER} updates in a row had no finite gradient, the last one with {'; '.join(lines[:_NAMED])}"
        f" (all its lines are in {path}): mend or remove them if they are odd, else lower optim.factor or"
        f" optim.peak_lr, or raise optim.warmup_steps; what was saved before is in {run.store.folder}"
    )


def try_largest_batch(run: Run, epoch: Epoch, plan: list[Indices]) -> None:
    """Forward and backward pass of the batch of the plan that needs most memory, so that it fails now if it must.

    With room for what the optimizer will keep. Changes nothing: neither gradients nor random states. It is exchanged
    like a real one, because DDP orders its buckets anew after the first exchange: so all updates, of a run that goes
    on too, are summed in the same order.
    """
    limit = run.job.train.batch_tokens
    update = epoch.largest_update(plan, limit, distributed.world_size())
    shares = epoch.share(update, limit, distributed.rank(), distributed.world_size())
    largest = max(shares or [update[:1]], key=lambda rows: epoch.size(rows)[1])
    states = random_states(run.runtime.device)
    with explained_memory("train.batch_tokens", limit):
        kept = [] if run.optimizer.state else [torch.empty_like(p) for p in run.model.parameters() for _ in range(2)]
        _backward(run, epoch, largest, 1, epoch.target_tokens(largest))
        del kept
    run.optimizer.zero_grad()
    set_random_states(states, run.runtime.device)
