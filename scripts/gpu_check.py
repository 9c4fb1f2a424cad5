"""Checks mt on this machine's GPUs: numbers compared with the CPU, speed and memory of each precision, and NCCL.

python scripts/gpu_check.py [--sizes tiny,base] [--compile] [--device cpu]

The exit code is 1 if a check fails. `--device cpu` tests the script itself.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from mt.config.schema import Device, ModelConfig, OptimConfig, Precision
from mt.decoding.search import BeamSearchConfig, search
from mt.errors import UserError
from mt.model.transformer import Transformer
from mt.run_folder import WEIGHTS, find_checkpoint
from mt.runtime.device import Runtime, peak_memory, start_runtime
from mt.tokenizers.special_ids import BOS, EOS, PAD, SPECIALS
from mt.training.loss import label_smoothed_loss
from mt.training.schedule import make_optimizer

VOCABULARY = 32_000
SIZES = {
    "tiny": ModelConfig(d_model=128, d_ff=256, heads=4, encoder_layers=4, decoder_layers=4, dropout=0.0),
    "base": ModelConfig(dropout=0.0),
}
CLOSE = 1e-4  # largest relative difference of loss and gradients in fp32
PRECISIONS = {"cuda": (Precision.fp32, Precision.tf32, Precision.bf16, Precision.fp16), "cpu": (Precision.fp32,)}


@dataclass(frozen=True)
class Text:
    """Random ids as sentences of unequal length."""

    source: Tensor
    target_in: Tensor
    target_out: Tensor
    non_padding: Tensor  # positions of the non-padding tokens in the flattened target_out

    @classmethod
    def make(cls, rows: int, longest: int, device: torch.device) -> "Text":
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(len(SPECIALS), VOCABULARY, (2, rows, longest), generator=generator)
        lengths = torch.randint(longest // 2, longest, (rows, 1), generator=generator)
        place = torch.arange(longest)
        ids = ids.masked_fill(place == lengths, EOS).masked_fill(place > lengths, PAD)
        target_in = torch.cat((torch.full((rows, 1), BOS), ids[1, :, :-1]), 1).masked_fill(place > lengths, PAD)
        non_padding = (ids[1] != PAD).flatten().nonzero()[:, 0]
        return cls(ids[0].to(device), target_in.to(device), ids[1].to(device), non_padding.to(device))

    def loss(self, model: Transformer, runtime: Runtime) -> Tensor:
        """The label-smoothed loss per token."""
        with runtime.autocast():
            states = model(self.source, self.target_in)
            loss = label_smoothed_loss(states, model.output.weight, self.target_out, 0.1, self.non_padding)
        return loss.smoothed / len(self.non_padding)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check mt on this machine's GPUs.")
    parser.add_argument("--sizes", default="tiny,base", type=lambda text: text.split(","))
    parser.add_argument("--compile", action="store_true", help="also measure torch.compile (minutes)")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tokens", type=int, default=8000, help="approximate source and target tokens per batch")
    arguments = parser.parse_args()
    device = Device(arguments.device)
    print(start_runtime(device, Precision.fp32, 0).describe(), f"torch {torch.__version__}", sep=", ")
    good = _same_numbers(device)
    for size in arguments.sizes:
        for precision in PRECISIONS[arguments.device]:
            for compiled in (False, True) if arguments.compile else (False,):
                try:
                    _speed(size, device, precision, compiled, arguments.tokens)
                except UserError as error:
                    print(f"{size}, {precision.value}: {error}")
    processes = torch.cuda.device_count() if device is Device.cuda else 2
    if processes > 1:
        good &= _several_processes(device)
    else:
        print("one GPU: training on several processes is not checked")
    print("all checks passed" if good else "CHECKS FAILED, see above")
    return 0 if good else 1


def _model(size: str, device: torch.device) -> Transformer:
    torch.manual_seed(1)
    return Transformer(SIZES[size], VOCABULARY, VOCABULARY).to(device)


def _same_numbers(device: Device) -> bool:
    """Compare loss, gradients and translations in fp32 with those on the CPU."""
    found: list[tuple[float, Tensor, list[list[tuple[int, ...]]]]] = []
    for where in (Device.cpu, device):
        runtime = start_runtime(where, Precision.fp32, 0)
        model = _model("tiny", runtime.device)
        text = Text.make(24, 30, runtime.device)
        value = text.loss(model, runtime)
        value.backward()
        gradient = torch.cat([p.grad.flatten().cpu() for p in model.parameters() if p.grad is not None])
        with torch.inference_mode():
            beam_search = BeamSearchConfig(beam_size=5, length_penalty=1.0, bos=BOS, eos=EOS)
            limits = torch.full((24,), 12, device=runtime.device)
            hypotheses = search(model.eval().step, model.start(text.source), limits, beam_search)
        found.append((float(value.detach()), gradient, [[each.tokens for each in beams] for beams in hypotheses]))
    (loss, gradient, beams), (other_loss, other_gradient, other_beams) = found
    differences = abs(loss - other_loss) / loss, float((gradient - other_gradient).norm() / gradient.norm())
    same = sum(a[0] == b[0] for a, b in zip(beams, other_beams, strict=True)) / len(beams)
    print(
        f"fp32 against the CPU: loss {differences[0]:.1e}, gradient {differences[1]:.1e}, {same:.0%} translations equal"
    )
    return max(differences) < CLOSE and same > 0.8


def _speed(size: str, device: Device, precision: Precision, compiled: bool, tokens: int) -> None:
    """Measure updates of one batch each for some seconds, and print the speed."""
    runtime = start_runtime(device, precision, 0)
    model = _model(size, runtime.device).train()
    if compiled:
        model.compile(dynamic=True)
    optimizer = make_optimizer(model, OptimConfig())
    scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.dtype == torch.float16)
    texts = [Text.make(tokens // (2 * longest), longest, runtime.device) for longest in (20, 32, 50)]
    done = 0
    if runtime.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for number in range(10**6):
        if number == len(texts):  # each shape has run once, so all kernels are loaded
            began, done = time.monotonic(), 0
        text = texts[number % len(texts)]
        scaler.scale(text.loss(model, runtime)).backward()
        scaler.unscale_(optimizer)
        float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        done += len(text.non_padding)
        if number >= 2 * len(texts) and time.monotonic() - began > 5:
            break
    speed, memory = done / (time.monotonic() - began), peak_memory(runtime.device)
    name = precision.value + (" compiled" if compiled else "")
    print(f"{size}, {name}: {speed:,.0f} target tokens/s, {memory:.1f} GiB", flush=True)


def _several_processes(device: Device) -> bool:
    """Compare the weights after 20 updates on two processes with those on one."""
    with tempfile.TemporaryDirectory() as folder:
        weights = []
        for count in (1, 2):
            options = ["experiment=captions", "train.max_updates=20", "train.max_minutes=null", "model.dropout=0"]
            options += [f"run.root={folder}", f"run.name=of{count}", f"data.prepared_dir={folder}/prepared"]
            options += [f"train.device={device.value}", f"train.devices={count}", "train.precision=fp32"]
            options += ["train.validate_sentences=10", "decode.max_length_a=0"]
            subprocess.run([sys.executable, "-m", "mt", "train", *options], check=True)
            weights.append(load_file(find_checkpoint(Path(folder) / f"of{count}") / WEIGHTS))
    one, other = (torch.cat([tensor.flatten() for _, tensor in sorted(found.items())]) for found in weights)
    difference = float((one - other).norm() / one.norm())
    print(f"two processes against one, 20 updates: weights differ by {difference:.1e}")
    return difference < 5 * CLOSE  # Adam amplifies rounding


if __name__ == "__main__":
    sys.exit(main())
