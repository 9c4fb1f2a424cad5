"""Validation during training: loss, perplexity, and BLEU of decoded translations."""

from dataclasses import dataclass

import torch

from mt.data.batching import Batch
from mt.data.corpus import DevelopmentSet
from mt.decoding.translator import Translator
from mt.evaluation.metrics import bleu
from mt.reporting.runlog import RunLog
from mt.runtime import distributed
from mt.runtime.stop import Interrupted, StopRequest
from mt.training.loss import label_smoothed_loss
from mt.training.metrics import perplexity
from mt.training.state import TrainerState

SAMPLES = 3  # translations that are logged


@dataclass(frozen=True)
class Validator:
    """Validates a translator's model, with the work divided among the processes; changes no random state."""

    translator: Translator
    dev: DevelopmentSet
    batches: list[Batch]  # of the whole development set, for the loss
    sentences: int  # the number translated for BLEU
    language: str
    label_smoothing: float

    def validate(self, state: TrainerState, log: RunLog, stop: StopRequest) -> None:
        """Validate, record the result in the state, and log it. Raises Interrupted in all processes."""
        loss, nll = self.losses(stop)
        nbest = self.translator.translate_ids(self.dev.source_ids[: self.sentences], stop)
        translations, references = [found[0].text for found in nbest], self.dev.references[: self.sentences]
        score = bleu(translations, references, self.language)
        beam = self.translator.decode.beam_size
        kind = "greedy" if beam == 1 else f"beam{beam}"
        better = state.record(score, nll)
        values = {"loss": loss, "nll": nll, "perplexity": perplexity(nll), f"bleu_{kind}": score}
        log.scalars(state.update, values, "validation")
        for number, *sample in zip(range(SAMPLES), self.dev.sources, translations, references, strict=False):
            log.text(state.update, f"sample_{number}", "\n\n".join(sample))
        log.info(
            f"validation at update {state.update}: perplexity {values['perplexity']:.2f}, BLEU {score:.2f}"
            f" ({kind}, {len(references)} sentences){', the best so far' if better else ''}"
        )

    def losses(self, stop: StopRequest) -> tuple[float, float]:
        """The label-smoothed and the unsmoothed loss of the development set, in nats per token."""
        model, runtime = self.translator.model, self.translator.runtime
        model.eval()
        smoothed = nll = tokens = 0.0
        with torch.inference_mode(), runtime.autocast():
            for batch in self.batches[distributed.rank() :: distributed.world_size()]:
                if stop.wanted():
                    break
                moved = batch.to(runtime.device)
                states = model(moved.source, moved.target_in)
                output = model.output.weight
                loss = label_smoothed_loss(states, output, moved.target_out, self.label_smoothing, moved.non_padding)
                smoothed, nll = smoothed + float(loss.smoothed), nll + float(loss.nll)
                tokens += batch.target_tokens
        model.train()
        smoothed, nll, all_tokens, stopped = distributed.all_reduce([smoothed, nll, tokens, stop.wanted()])
        if stopped:
            raise Interrupted
        return smoothed / all_tokens, nll / all_tokens
