"""Trains tokenizers: SentencePiece models here, word vocabularies with `words`."""

import io
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece

from mt.config.schema import TokenizerConfig, TokenizerKind
from mt.errors import UserError
from mt.tokenizers.pair import SIDES, Tokenizers
from mt.tokenizers.sentencepiece import THREADS, SentencePieceTokenizer, load_model
from mt.tokenizers.special_ids import BOS, EOS, PAD, SPECIALS, UNK, UNKNOWN_TEXT
from mt.tokenizers.tokenizer import one_line
from mt.tokenizers.words import train_words

Log = Callable[[str], None]
MOST_CHARACTERS = 20_000_000  # per side; SentencePiece 0.2.3 needs about 22 bytes of memory for each


def train_tokenizers(
    lines: Sequence[Callable[[], Iterator[str]]],
    config: TokenizerConfig,
    languages: tuple[str, str],
    seed: int,
    log: Log,
) -> Tokenizers:
    """Train both sides' tokenizers, reproducibly, or load them from `config.model`. Raises UserError if that fails."""
    if config.kind is TokenizerKind.word:
        if config.model is not None:
            raise UserError(f"tokenizer.model={config.model} needs tokenizer.kind=sentencepiece")
        words = train_words([read() for read in lines], config, languages, log)
        return Tokenizers(words[0], words[1], config.joint, *languages)
    if config.model is not None:
        existing = load_model(Path(config.model))
        log(f"tokenizer: {config.model}, {existing.size} pieces")
        return Tokenizers(existing, existing, True, *languages)
    _check_symbols(config.symbols)
    samples = [_sample(read(), side, config.max_sentences, seed, log) for read, side in zip(lines, SIDES, strict=True)]
    if config.joint:
        both = _train(samples[0] + samples[1], "joint", config, log)
        return Tokenizers(both, both, True, *languages)
    source, target = (_train(sample, side, config, log) for sample, side in zip(samples, SIDES, strict=True))
    return Tokenizers(source, target, False, *languages)


def _check_symbols(symbols: Sequence[str]) -> None:
    for symbol in symbols:
        if not symbol.strip() or one_line(symbol) != symbol:
            raise UserError(f"tokenizer.symbols: {symbol!r} is blank or has a line break: leave it out")
        if symbol in SPECIALS:
            raise UserError(f"tokenizer.symbols: {symbol} is reserved: text must not be able to spell it")
        if symbols.count(symbol) > 1:
            raise UserError(f"tokenizer.symbols: {symbol} is listed twice: leave one out")


def _sample(lines: Iterable[str], side: str, most: int, seed: int, log: Log) -> list[str]:
    """A uniform sample of at most `most` non-blank lines and MOST_CHARACTERS (Vitter 1985, algorithm R)."""
    generator = random.Random(seed)
    kept: list[tuple[int, str]] = []
    seen = characters = 0
    for line in lines:
        if not line.strip():
            continue
        if len(kept) < most:
            kept.append((seen, line))
            characters += len(line)
        elif (place := generator.randrange(seen + 1)) < most:
            characters += len(line) - len(kept[place][1])
            kept[place] = (seen, line)
        while characters > MOST_CHARACTERS and len(kept) > 1:  # from now on, the sample is smaller
            place = generator.randrange(len(kept))
            kept[place], kept[-1] = kept[-1], kept[place]
            characters -= len(kept.pop()[1])
            most = len(kept)
        seen += 1
    log(f"tokenizer: sampled {len(kept)} of {seen} {side} lines")
    if not kept:
        raise UserError(f"the {side} side has no training text for the tokenizer: check data.train")
    return [one_line(line) for _, line in sorted(kept)]


def _train(lines: list[str], side: str, config: TokenizerConfig, log: Log) -> SentencePieceTokenizer:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=config.type.value,
            vocab_size=config.vocab_size,
            hard_vocab_limit=False,
            byte_fallback=config.byte_fallback,
            character_coverage=config.character_coverage,
            user_defined_symbols=[symbol.replace(" ", "▁") for symbol in config.symbols],  # ▁ is a space
            normalization_rule_name="nmt_nfkc",
            max_sentence_length=max(len(line.encode()) for line in lines) + 1,  # longer ones are dropped silently
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            unk_surface=UNKNOWN_TEXT,
            num_threads=THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        if sizes := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            others = ", 256 bytes (tokenizer.byte_fallback)" if config.byte_fallback else ""
            least = f"{sizes[1]}, for 4 special ids{others}, symbols and characters (tokenizer.character_coverage)"
            given = f"tokenizer.vocab_size={config.vocab_size} is too small for the {side} text"
            raise UserError(f"{given}: it must be at least {least}") from None
        reason = " ".join(str(error).rsplit("]", 1)[-1].split()) or "no usable text"
        raise UserError(f"SentencePiece cannot train on the {side} text: {reason}") from None
    tokenizer = SentencePieceTokenizer(model.getvalue(), f"the {side} tokenizer")
    size = f"the {side} vocabulary has {tokenizer.size} pieces"
    less = f"warning: {size}, not tokenizer.vocab_size={config.vocab_size}: the text yields no more"
    log(f"tokenizer: {less if tokenizer.size < config.vocab_size else size}")
    return tokenizer
