"""Random input works or is rejected in one line, without other exceptions or hangs.

MT_FUZZ sets the number of inputs of each kind (the default is small).
"""

import gzip
import json
import lzma
import os
import random
import shutil
import time
import warnings

import pytest
import torch
import yaml
from tests_support import learner_of

from mt.checkpoint.folder import Checkpoint, write_checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.commands import COMMANDS
from mt.commands.translate import read_blocks
from mt.config.compose import compose
from mt.config.overrides import expand_sweep
from mt.config.schema import (
    Corpus,
    DataConfig,
    DecodeConfig,
    Device,
    InvalidText,
    Precision,
    TokenizerConfig,
    TrainConfig,
)
from mt.corpora.locate import locate
from mt.data.preparation import prepare
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.files import sha256_of
from mt.run_folder import RunFolder, find_checkpoint
from mt.runtime.device import start_runtime
from mt.training.state import TrainerState, pack, restore

COUNT = int(os.environ.get("MT_FUZZ", 0))
SECONDS = 20.0  # for one input

PIECES = [
    *(
        b"a dog",
        b"\n",
        b"\r\n",
        b"\r",
        b"\t",
        b"",
        b" ",
        b"\x00",
        b"\x80",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
    ),
    *(
        b"\xed\xa0\x80",
        b"</s>",
        b"<unk>",
        b"\xc2\x85",
        b"\x1c",
        b"\xf0\x9f\x98\x80",
        "ü ß 你好".encode(),
        "⁇ ▁".encode(),
    ),
    *(b"x" * 300, b"<refset", b"1 2 3", b'"', b"{", b'{"en": "x", "de": "y"}'),
]
VALUES = [
    *("1", "-1", "0.5", "1e400", "nan", "true", "null", "[", "[a,b]", "{a: [b,c]}", "a,b", "'x", "${seed}", "small"),
    *("files", "auto", "range(1,3)", "choice(1,2)", "ü", "\x00", "%", "a=b", "(", "!!", "\udc80"),
]


def some_bytes(generator: random.Random) -> bytes:
    pieces = (generator.choice(PIECES) for _ in range(generator.randrange(60)))
    return b"".join(bytes([generator.randrange(256)]) if generator.random() < 0.1 else piece for piece in pieces)


def tried(count: int, attempt) -> dict[str, int]:
    """Call `attempt` with `count` generators, and count how often it worked and how often it was refused."""
    ended = {"worked": 0, "refused": 0}
    for seed in range(COUNT or count):
        began, said = time.monotonic(), "-"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                attempt(random.Random(seed))
            ended["worked"] += 1
        except UserError as error:
            ended["refused"] += 1
            said = str(error)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        assert said and len(said.splitlines()) == 1, f"seed {seed}: {said}"
        assert time.monotonic() - began < SECONDS, f"seed {seed} hangs"
    return ended


KINDS = {
    ("a.en", "a.de"): lambda source, target: [source, target],
    ("a.en.gz", "a.de.xz"): lambda source, target: [source, target],
    ("a.tsv",): lambda source, target: [source + b"\t" + target],
    ("a.jsonl",): lambda source, target: [json.dumps({"en": repr(source), "de": repr(target)}).encode()],
}


def sentence(generator: random.Random) -> bytes:
    words = [generator.choice([b"dog", b"cat", b"sees", b"red"]) for _ in range(generator.randrange(8))]
    return b" ".join(words) + (some_bytes(generator).replace(b"\n", b" ") if generator.random() < 0.005 else b"")


def test_files_of_any_bytes(tmp_path):
    def attempt(generator):
        names, row = generator.choice(list(KINDS.items()))
        rows = [row(sentence(generator), sentence(generator)) for _ in range(generator.randrange(120))]
        files = [tmp_path / name for name in names]
        for column, file in enumerate(files):
            content = b"".join(row[column] + b"\n" for row in rows)
            content = {".gz": gzip.compress, ".xz": lzma.compress}.get(file.suffix, bytes)(content)
            file.write_bytes(spoiled(generator, content) if generator.random() < 0.15 else content)
        config = DataConfig(
            corpus=Corpus.files,
            prepared_dir=str(tmp_path / "prepared"),
            train=[str(file) for file in files],
            invalid_utf8=generator.choice(list(InvalidText)),
        )
        tokenizer = TokenizerConfig(vocab_size=generator.choice([300, 8000]))
        prepared = prepare(locate(config, lambda line: None), config, tokenizer, 1, lambda line: None)
        assert len(prepared.source) == len(prepared.target) == len(prepared.origins) > 0
        shutil.rmtree(prepared.folder)

    ended = tried(40, attempt)
    assert ended["worked"] > 0 < ended["refused"]
    assert not list((tmp_path / "prepared").iterdir())


def test_command_lines_of_any_words():
    def attempt(generator):
        command = generator.choice(list(COMMANDS.values()))
        names = [*command.keys, *command.groups, "nonsense", ""]
        overrides = []
        for _ in range(generator.randrange(4)):
            prefix, sign = generator.choice(["", "", "", "+", "~"]), generator.choice(["=", "=", "=", "", ":"])
            overrides.append(f"{prefix}{generator.choice(names)}{sign}{generator.choice(VALUES)}")
        expand_sweep(command, overrides)
        compose(command, overrides)

    ended = tried(60, attempt)
    assert ended["worked"] > 0 < ended["refused"]


@pytest.fixture
def saved(tmp_path, toy_model, toy_tokenizers):
    """A folder with a checkpoint in run/ to spoil and a copy in good/, and a function that opens a checkpoint."""
    config = TrainConfig(model=toy_model.config)
    state = pack(TrainerState(update=5), learner_of(toy_model), {"metrics.jsonl": 7})
    store = CheckpointStore(RunFolder(tmp_path / "run"))
    parameters = dict(toy_model.named_parameters())
    write_checkpoint(store.folder / "update-0000005", parameters, config, toy_tokenizers, {"update": 5}, state)
    store.set(last="update-0000005")
    shutil.copytree(tmp_path / "run", tmp_path / "good")

    def open_all(path):
        checkpoint = Checkpoint.open(find_checkpoint(path))
        checkpoint.load_tokenizers()
        restore(checkpoint.load_state(), 1, learner_of(checkpoint.load_model()))

    open_all(tmp_path / "run")
    return tmp_path, open_all


def spoiled(generator: random.Random, content: bytes) -> bytes:
    kind = generator.randrange(5)
    if kind == 0:
        return content[: generator.randrange(len(content) + 1)]
    if kind == 1 or not content:
        return some_bytes(generator)
    changed = bytearray(content)
    for _ in range(generator.choice([1, 3, 40])):
        changed[generator.randrange(len(changed))] = generator.randrange(256)
    return bytes(changed)


def spoiled_values(generator: random.Random, values):
    """Plain values, one of which is replaced or removed."""
    if isinstance(values, dict) and values:
        name = generator.choice(list(values))
        changed = dict(values)
        if generator.random() < 0.2:
            del changed[name]
        else:
            changed[name] = spoiled_values(generator, values[name])
        return changed
    return generator.choice([None, -1, 0, 3, 10**9, 1.5, float("nan"), "x", "", [], {}, [1], {"a": 1}, True])


def test_checkpoints_of_any_damage(saved):
    folder, open_all = saved

    def attempt(generator):
        shutil.rmtree(folder / "run")
        shutil.copytree(folder / "good", folder / "run")
        files = sorted(path for path in (folder / "run").rglob("*") if path.is_file())
        path = generator.choice(files)
        if path.suffix in (".json", ".yaml") and generator.random() < 0.7:
            read, write = (json.loads, json.dumps) if path.suffix == ".json" else (yaml.safe_load, yaml.safe_dump)
            path.write_text(write(spoiled_values(generator, read(path.read_text()))))
        else:
            path.write_bytes(spoiled(generator, path.read_bytes()))
        meta = folder / "run" / "checkpoints" / "update-0000005" / "meta.json"
        if generator.random() < 0.7 and path not in (meta, files[0]) and path.name != "index.json":
            values = json.loads(meta.read_text())  # correct the hash, so that the damage is not caught by it
            values["hashes"][path.name] = sha256_of(path)
            meta.write_text(json.dumps(values))
        open_all(folder / "run")

    ended = tried(60, attempt)
    assert ended["refused"] > ended["worked"]


def test_text_of_any_bytes_is_translated_line_by_line(toy_model, toy_tokenizers, tmp_path):
    runtime = start_runtime(Device.cpu, Precision.fp32, torch.get_num_threads())
    decode = DecodeConfig(beam_size=2, max_length_a=0.0, max_length_b=4)
    translator = Translator(toy_model, toy_tokenizers, decode, runtime)

    def attempt(generator):
        content = some_bytes(generator)
        (tmp_path / "text").write_bytes(content)
        with (tmp_path / "text").open("rb") as stream:
            translations = [line for block in read_blocks(stream, 7) for line in translator.translate(block)]
        assert len(translations) == content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
        assert all(len(line.splitlines()) <= 1 for line in translations)

    assert tried(25, attempt)["refused"] == 0
