"""Runs each of the compared tools on the common workload, and reads its speed from its output."""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from workload import SIZES, SOURCE, TARGET, TEST, TRAIN, UPDATE_TOKENS, VOCABULARY, Numbers, Workload, rates

HERE = Path(__file__).parent
PEERS = ("joeynmt", "eole", "marian", "ctranslate2")


@dataclass(frozen=True)
class Finished:
    """The result of a program that has ended."""

    output: str
    seconds: float
    peak_memory_mib: float


@dataclass(frozen=True)
class Bench:
    """Installs and runs the tools on a workload, with a number of threads."""

    work: Workload
    raw: Path  # Multi30k's files
    peers: Path  # one virtual environment per peer
    threads: int

    def python(self, peer: str) -> Path:
        return self.peers / peer / "bin" / "python"

    def installed(self, peer: str) -> bool:
        return (self.peers / peer / ".ready").exists()

    def install(self, peer: str) -> None:
        """Create a peer's environment from its requirements file. This takes minutes and gigabytes."""
        subprocess.run([sys.executable, "-m", "venv", self.peers / peer], check=True)
        requirements = HERE / "requirements" / f"{peer}.txt"
        subprocess.run([self.python(peer), "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
        (self.peers / peer / ".ready").touch()

    def run(self, command: Sequence[str | Path], stdin: Path | None = None) -> Finished:
        """Run a command in the workload's folder. Raises RuntimeError with the end of its output if it fails."""
        threads = {name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        began = time.monotonic()
        log = self.work.folder / "last.log"
        with log.open("wb") as out, open(stdin or os.devnull, "rb") as source:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.work.folder,
                env=os.environ | threads,
                stdin=source,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        text = log.read_text(encoding="utf-8", errors="replace")
        if process.returncode:
            raise RuntimeError(f"{command[0]} ended with {process.returncode}: {text[-2000:]}")
        return Finished(text, time.monotonic() - began, usage.ru_maxrss / 1024)


def train_mt(bench: Bench, size: str, seconds: float, precision: str = "fp32") -> Numbers:
    return _ours(bench, "train", bench.work.folder, bench.raw, size, f"{seconds}", precision, f"{bench.threads}")


def limit(bench: Bench, precision: str) -> Numbers:
    """This machine's rate of matrix products, an upper bound of training speed."""
    return _ours(bench, "limit", precision, f"{bench.threads}")


def _ours(bench: Bench, *arguments: str | Path) -> Numbers:
    return _numbers(bench.run([sys.executable, HERE / "ours.py", *arguments]))


def _numbers(done: Finished) -> Numbers:
    """The numbers in a program's last line of output, and its peak memory."""
    found: Numbers = json.loads(done.output.splitlines()[-1])
    return found | {"peak_memory_mib": done.peak_memory_mib}


def train_joeynmt(bench: Bench, size: str, reports: int, updates: int = 4) -> Numbers:
    """Train for `reports` reports of `updates` updates each, after one report that does not count."""
    path = _joeynmt_config(bench, size, updates * (reports + 1), updates)
    done = bench.run([bench.python("joeynmt"), "-m", "joeynmt", "train", path, "--skip-test"])
    return _speed(done, r"Tokens per Sec:\s+([\d.]+)")


def _joeynmt_config(bench: Bench, size: str, updates: int, every: int) -> Path:
    shape, folder = SIZES[size], bench.work.folder
    side = {
        "max_length": 200,
        "lowercase": False,
        "normalize": False,
        "level": "bpe",
        "voc_min_freq": 1,
        "voc_file": str(folder / "vocab.joeynmt.txt"),
        "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": str(bench.work.model), "pretokenizer": "none"},
    }
    stack = {
        "type": "transformer",
        "num_layers": shape.layers,
        "num_heads": shape.heads,
        "embeddings": {"embedding_dim": shape.width, "scale": True, "dropout": 0.0},
        "hidden_size": shape.width,
        "ff_size": shape.inner,
        "dropout": shape.dropout,
        "layer_norm": "pre",
    }
    config = {
        "name": "benchmark",
        "joeynmt_version": "2.3.0",
        "model_dir": str(folder / f"joeynmt-{size}"),
        "use_cuda": False,
        "fp16": False,
        "random_seed": 1,
        "data": {
            "train": str(folder / TRAIN),
            "dev": str(folder / "val"),
            "test": str(folder / TEST),
            "dataset_type": "plain",
            "sample_dev_subset": 20,
            "src": {**side, "lang": SOURCE},
            "trg": {**side, "lang": TARGET},
            "special_symbols": {
                **{"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"},
                **{"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3},
            },
        },
        "testing": {
            **{"n_best": 1, "beam_size": 5, "beam_alpha": 1.0, "batch_size": 64, "batch_type": "sentence"},
            **{"eval_metrics": ["bleu"], "max_output_length": 60},
        },
        "training": {
            **{"overwrite": True, "optimizer": "adam", "adam_betas": [0.9, 0.98], "learning_rate": 0.005},
            **{"learning_rate_min": 1e-9, "learning_rate_warmup": 1000, "clip_grad_norm": 1.0, "weight_decay": 0.0},
            **{"loss": "crossentropy", "label_smoothing": 0.1, "batch_size": UPDATE_TOKENS, "batch_type": "token"},
            **{"normalization": "tokens", "scheduling": "warmupinversesquareroot", "epochs": 1000},
            **{"updates": updates, "validation_freq": updates, "logging_freq": every},
            **{"early_stopping_metric": "loss", "shuffle": True},
        },
        "model": {
            **{"initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "bias_initializer": "zeros"},
            **{"init_gain": 1.0, "tied_embeddings": True, "tied_softmax": True, "encoder": stack, "decoder": stack},
        },
    }
    path = folder / f"joeynmt-{size}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def train_eole(bench: Bench, size: str, reports: int, updates: int = 4) -> Numbers:
    shape, work = SIZES[size], bench.work
    vocabulary = str(work.folder / "vocab.eole.txt")
    config = {
        **{"seed": 1, "share_vocab": True, "save_data": str(work.folder / "eole"), "overwrite": True},
        **{"src_vocab": vocabulary, "tgt_vocab": vocabulary, "vocab_size_multiple": 1},
        **{"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY, "report_every": updates, "transforms": []},
        "data": {
            "corpus": {
                "path_src": str(work.pieces(TRAIN, SOURCE)),
                "path_tgt": str(work.pieces(TRAIN, TARGET)),
                "transforms": [],
            }
        },
        "model": {
            **{"architecture": "transformer", "hidden_size": shape.width, "heads": shape.heads},
            **{"encoder": {"layers": shape.layers}, "decoder": {"layers": shape.layers}},
            **{"transformer_ff": shape.inner, "share_embeddings": True, "share_decoder_embeddings": True},
            "embeddings": {"word_vec_size": shape.width, "position_encoding_type": "SinusoidalInterleaved"},
        },
        "training": {
            **{"model_path": str(work.folder / "eole" / "model"), "batch_type": "tokens"},
            **{"batch_size": UPDATE_TOKENS, "batch_size_multiple": 1, "bucket_size": 29000, "prefetch_factor": 8},
            **{"num_workers": 1, "accum_count": [1], "optim": "adam", "adam_beta2": 0.98, "learning_rate": 2.0},
            **{"warmup_steps": 2000, "decay_method": "noam", "max_grad_norm": 1, "label_smoothing": 0.1},
            **{"dropout": [shape.dropout], "attention_dropout": [0.0], "dropout_steps": [0]},
            **{"param_init_method": "xavier_uniform", "normalization": "tokens", "compute_dtype": "fp32"},
            **{"train_steps": updates * (reports + 1), "save_checkpoint_steps": 10**6, "valid_steps": 10**6},
            **{"gpu_ranks": [], "world_size": 1},
        },
    }
    path = work.folder / f"eole-{size}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    done = bench.run([bench.peers / "eole" / "bin" / "eole", "train", "-config", path])
    return _speed(done, r"[\d.]+/\s*([\d.]+) tok/s")


def train_marian(bench: Bench, size: str, reports: int, updates: int = 10, model: str = "marian-speed") -> Numbers:
    shape = SIZES[size]
    for left in bench.work.folder.glob(f"{model}-{size}*"):
        left.unlink()
    options = (
        f"--type transformer -m {model}-{size}.npz -t {TRAIN}.{SOURCE} {TRAIN}.{TARGET} -v vocab.spm vocab.spm"
        f" --dim-vocabs {VOCABULARY} {VOCABULARY} --dim-emb {shape.width} --transformer-dim-ffn {shape.inner}"
        f" --transformer-heads {shape.heads} --enc-depth {shape.layers} --dec-depth {shape.layers}"
        f" --transformer-dropout {shape.dropout} --tied-embeddings-all --transformer-preprocess n"
        " --transformer-postprocess da --label-smoothing 0.1 --learn-rate 0.005 --lr-warmup 1000"
        " --lr-decay-inv-sqrt 1000 --optimizer-params 0.9 0.98 1e-09 --clip-norm 1 --mini-batch 1000"
        f" --mini-batch-words {UPDATE_TOKENS // bench.threads} --maxi-batch 100 --max-length 100"
        f" --cpu-threads {bench.threads} -w 3000 --seed 1 --after {updates * (reports + 1)}u --disp-freq {updates}"
    )
    program = "import sys, pymarian; pymarian.Trainer(sys.argv[1]).train()"
    return _speed(bench.run([bench.python("marian"), "-c", program, options]), r"([\d.]+) words/s")


def _speed(done: Finished, pattern: str) -> Numbers:
    """The mean speed in a tool's reports, except the first; each report covers the same number of updates."""
    reports = [float(number) for number in re.findall(pattern, done.output)][1:]
    if not reports:
        raise RuntimeError(f"no speed was reported: {done.output[-2000:]}")
    return {
        "target_tokens_per_second": statistics.harmonic_mean(reports),
        "peak_memory_mib": done.peak_memory_mib,
    }


def decode_mt(bench: Bench, run: Path, engine: str) -> Numbers:
    text = bench.work.text(TEST, SOURCE)
    return _ours(bench, "decode", run, text, engine, f"{bench.threads}", bench.work.model)


def decode_ctranslate2(bench: Bench, export: Path) -> Numbers:
    return _decode_with_driver(bench, "ctranslate2", [str(export), str(bench.work.model)])


def decode_marian(bench: Bench, model: str) -> Numbers:
    options = (
        f"-m {model} -v vocab.spm vocab.spm --cpu-threads {bench.threads} -b 5 --normalize 1 --mini-batch 64"
        " --maxi-batch 100 --maxi-batch-sort src --quiet"
    )
    return _decode_with_driver(bench, "marian", [options, str(bench.work.model)])


def _decode_with_driver(bench: Bench, peer: str, arguments: list[str]) -> Numbers:
    text = bench.work.text(TEST, SOURCE)
    program = HERE / "decode_peer.py"
    return _numbers(bench.run([bench.python(peer), program, peer, text, f"{bench.threads}", *arguments]))


def decode_joeynmt(bench: Bench, run: Path) -> Numbers:
    """Decode with JoeyNMT; the time is the one that it logs for the search alone."""
    config, text = _joeynmt_config(bench, "tiny", 1, 1), bench.work.text(TEST, SOURCE)
    bench.run([sys.executable, HERE / "joeynmt_model.py", run, bench.work.folder / "joeynmt-tiny"])
    done = bench.run([bench.python("joeynmt"), "-m", "joeynmt", "translate", config], stdin=text)
    took = re.search(r"Generation took ([\d.]+)", done.output)
    if not took:
        raise RuntimeError(f"no time was reported: {done.output[-2000:]}")
    count = len(text.read_text(encoding="utf-8").splitlines())
    translations = done.output.splitlines()[-count:]  # after its log lines
    return rates(translations, float(took[1]), bench.work.model) | {"peak_memory_mib": done.peak_memory_mib}


TRAINERS: dict[str, Callable[..., Numbers]] = {"joeynmt": train_joeynmt, "eole": train_eole, "marian": train_marian}
