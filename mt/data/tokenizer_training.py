"""Tokenizers made from the training lines: SentencePiece models here, vocabularies of words in `mt.data.words`."""

import io
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from mt.config import TokenizerConfig, TokenizerKind
from mt.data.tokenizer import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    THREADS,
    UNK,
    UNKNOWN_TEXT,
    SentencePieceTokenizer,
    Tokenizers,
    load_model,
    one_line,
)
from mt.errors import UserError

# Of each side's sample: SentencePiece needs about 22 bytes of memory a character (measured with 0.2.3)
MOST_CHARACTERS = 20_000_000


def train_tokenizers(
    source_lines: Callable[[], Iterator[str]],
    target_lines: Callable[[], Iterator[str]],
    config: TokenizerConfig,
    source_language: str,
    target_language: str,
    seed: int,
    log: Callable[[str], None],
) -> Tokenizers:
    """Tokenizers made from the two sides' training lines, each read once, or loaded from `config.model`.

    The same lines, config and seed give the same bytes. Raises UserError for what cannot be done.
    """
    languages = source_language, target_language
    if config.kind is TokenizerKind.word:
        from mt.data.words import train_words

        if config.model is not None:
            raise UserError(f"tokenizer.model={config.model} needs tokenizer.kind=sentencepiece")
        words = train_words(source_lines(), target_lines(), config, *languages, log)
        return Tokenizers(*words, config.joint, *languages)
    if config.model is not None:
        existing = load_model(Path(config.model))
        log(f"tokenizer: {config.model}, {existing.size} pieces")
        return Tokenizers(existing, existing, True, *languages)
    symbols = _checked_symbols(config.symbols)
    lines = {"source": source_lines, "target": target_lines}
    samples = {side: _sample_lines(lines[side](), side, config.max_sentences, seed, log) for side in lines}
    if config.joint:
        both = _train_model(samples["source"] + samples["target"], "joint", config, symbols, log)
        return Tokenizers(both, both, True, *languages)
    models = [_train_model(samples[side], side, config, symbols, log) for side in samples]
    return Tokenizers(models[0], models[1], False, *languages)


def _checked_symbols(symbols: Sequence[str]) -> list[str]:
    for symbol in symbols:
        if not symbol.strip() or one_line(symbol) != symbol:
            raise UserError(f"tokenizer.symbols: {symbol!r} is blank or has a line end: leave it out")
        if symbol in SPECIALS:
            raise UserError(f"tokenizer.symbols: {symbol} is reserved: text must not be able to spell it")
        if symbols.count(symbol) > 1:
            raise UserError(f"tokenizer.symbols: {symbol} is listed twice: leave one out")
    # the model sees blanks as ▁, and would never find a symbol spelled otherwise
    return [symbol.replace(" ", "▁") for symbol in symbols]


def _sample_lines(lines: Iterable[str], side: str, most: int, seed: int, log: Callable[[str], None]) -> list[str]:
    """At most `most` lines that are not blank, each as likely as any other (Vitter 1985, algorithm R).

    They have at most MOST_CHARACTERS together.
    """
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
        while characters > MOST_CHARACTERS and len(kept) > 1:  # a smaller sample of what was seen, and from now on
            place = generator.randrange(len(kept))
            kept[place], kept[-1] = kept[-1], kept[place]
            characters -= len(kept.pop()[1])
            most = len(kept)
        seen += 1
    log(f"tokenizer: sampled {len(kept)} of {seen} {side} lines")
    if not kept:
        raise UserError(f"the {side} side has no training text for the tokenizer: check data.train")
    return [one_line(line) for _, line in sorted(kept)]


def _train_model(
    lines: list[str], side: str, config: TokenizerConfig, symbols: list[str], log: Callable[[str], None]
) -> SentencePieceTokenizer:
    import sentencepiece

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
            user_defined_symbols=symbols,
            normalization_rule_name="nmt_nfkc",
            # in bytes: longer lines would be dropped without a word
            max_sentence_length=max(len(line.encode()) for line in lines) + 1,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            unk_surface=UNKNOWN_TEXT,
            num_threads=THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _training_error(str(error), side, config) from None
    tokenizer = SentencePieceTokenizer(model.getvalue(), f"the {side} tokenizer")
    if tokenizer.size < config.vocab_size:
        log(
            f"tokenizer: warning: the {side} vocabulary has {tokenizer.size} pieces, not "
            f"tokenizer.vocab_size={config.vocab_size}: the text has no more"
        )
    else:
        log(f"tokenizer: the {side} vocabulary has {tokenizer.size} pieces")
    return tokenizer


def _training_error(message: str, side: str, config: TokenizerConfig) -> UserError:
    sizes = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if sizes:
        others = ", 256 bytes (tokenizer.byte_fallback)" if config.byte_fallback else ""
        return UserError(
            f"tokenizer.vocab_size={config.vocab_size} is too small for the {side} text: it must be at least "
            f"{sizes[1]}: 4 specials{others}, symbols, characters (tokenizer.character_coverage)"
        )
    reason = message.rsplit("]", 1)[-1].strip() or "no usable text"
    return UserError(f"SentencePiece cannot train on the {side} text: {' '.join(reason.split())}")
