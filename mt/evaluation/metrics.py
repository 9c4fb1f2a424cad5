"""Scores of raw, detokenized text, in percent: sacreBLEU, chrF2, TER, and BLEU as in the Multi30k papers."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER

from mt.errors import UserError

# sacreBLEU's tokenizers for languages that its default, 13a, cannot split into words
_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_NO_MOSES = {*_TOKENIZERS, "yue"}  # sacremoses lists some of these, but Moses splits text only at blanks
_RESAMPLES = 1000
_SACREBLEU_SEED = 12345  # sacreBLEU's default, so that `sacrebleu --confidence` draws the same resamples


@dataclass(frozen=True)
class Scores:
    """The scores of one set of translations, in percent. `ter` is an error rate: lower is better.

    `interval` is the 95% bootstrap interval of `sacrebleu`, or None for a single sentence. `compatible` is BLEU as in
    the Multi30k papers (see `published_form`), or None if the target language has no Moses tokenization. `warnings` are
    lines for the user.
    """

    sacrebleu: float
    signature: str
    interval: tuple[float, float] | None
    compatible: float | None
    chrf: float
    chrf_signature: str
    ter: float
    ter_signature: str
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The scores, without the warnings, in types that JSON has."""
        return {name: value for name, value in vars(self).items() if name != "warnings"}


def score(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> Scores:
    """All scores of `hypotheses` (by the model) against `references` (by people). Raises UserError."""
    _check(hypotheses, references)
    metric = bleu_metric(target_language)
    with _sacrebleu_messages() as messages:
        corpus_bleu = metric.corpus_score(hypotheses, [references]).score
        bounds = _interval(hypotheses, references, target_language)
    compatible, chrf, ter = None, CHRF(), TER()
    if has_published_form(target_language):
        plain = BLEU(tokenize="none", force=True)  # force: this text is meant to be tokenized
        published = (published_form(lines, target_language) for lines in (hypotheses, references))
        compatible = float(plain.corpus_score(next(published), [next(published)]).score)
    return Scores(
        sacrebleu=corpus_bleu,
        signature=str(metric.get_signature()),
        interval=bounds,
        compatible=compatible,
        chrf=chrf.corpus_score(hypotheses, [references]).score,
        chrf_signature=str(chrf.get_signature()),
        ter=ter.corpus_score(hypotheses, [references]).score,
        ter_signature=str(ter.get_signature()),
        warnings=tokenized_text_warnings(hypotheses, references) or tuple(messages),
    )


def bleu(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> float:
    """The same number as `score(...).sacrebleu`, without warnings. Raises the same errors."""
    _check(hypotheses, references)
    with _sacrebleu_messages():
        return float(bleu_metric(target_language).corpus_score(hypotheses, [references]).score)


def tokenized_text_warnings(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[str, ...]:
    """A warning for each side that looks tokenized, because its scores would not be comparable."""
    found = []
    for side, lines in (("hypotheses", hypotheses), ("references", references)):
        count = sum(line.rstrip().endswith(" .") for line in lines)
        if count >= 100 or 2 * count > len(lines):
            found.append(
                f'{count} of {len(lines)} {side} end in a separate " .": they look tokenized, and sacreBLEU'
                " is only comparable on raw, detokenized text"
            )
    return tuple(found)


def published_form(lines: Sequence[str], language: str) -> list[str]:
    """Lines in the form of the Multi30k dataset's `*.lc.norm.tok.*` files. Raises ValueError without Moses rules."""
    if not has_published_form(language):
        raise ValueError(f"no Moses tokenization for language {language!r}")
    normalizer, tokenizer = _moses(_base(language))
    return [tokenizer.tokenize(normalizer.normalize(line.lower()), escape=True, return_str=True) for line in lines]


def has_published_form(language: str) -> bool:
    """Whether sacremoses knows the abbreviations of the language, and the language has blanks between words."""
    from sacremoses.corpus import NonbreakingPrefixes  # importing it takes 0.2 s

    base = _base(language)
    return base in NonbreakingPrefixes().available_langs.values() and base not in _NO_MOSES


def table(scores: Mapping[str, Scores]) -> str:
    """The scores of named test sets as a table for the terminal, followed by the signatures of the metrics."""
    rows = [("test set", "BLEU", "95% interval", "compatible", "chrF2", "TER")]
    for name, one in scores.items():
        bounds = "-" if one.interval is None else f"[{one.interval[0]:.2f}, {one.interval[1]:.2f}]"
        compatible = "-" if one.compatible is None else f"{one.compatible:.2f}"
        rows.append((name, f"{one.sacrebleu:.2f}", bounds, compatible, f"{one.chrf:.2f}", f"{one.ter:.2f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths[0] = -widths[0]  # left-aligned
    lines = ["  ".join(f"%{width}s" % cell for cell, width in zip(row, widths, strict=True)) for row in rows]
    for metric, field in (("BLEU", "signature"), ("chrF2", "chrf_signature"), ("TER", "ter_signature")):
        lines += [f"{metric}: {text}" for text in dict.fromkeys(getattr(one, field) for one in scores.values())]
    if any(one.compatible is not None for one in scores.values()):
        lines.append("compatible: BLEU of lower-cased, normalized, Moses-tokenized text, as in Multi30k papers")
    return "\n".join(lines)


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    # sacreBLEU itself ignores extra lines on one side, and accepts a string instead of a list
    for lines in (hypotheses, references):
        if isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
            raise TypeError("scoring takes one string per sentence, in a list for each side")
    counts = len(hypotheses), len(references)
    if counts[0] != counts[1]:
        hint = " (wmt14 has 2737 English-German sentences, wmt14/full 3003)" if set(counts) == {2737, 3003} else ""
        raise UserError(f"{counts[0]} hypotheses but {counts[1]} references{hint}: each hypothesis needs one reference")
    if not hypotheses:
        raise UserError("0 hypotheses and 0 references: there is nothing to score; check the test set's files")


def _base(language: str) -> str:
    return language.replace("_", "-").split("-")[0].lower()


def bleu_metric(target_language: str, effective_order: bool = False) -> Any:
    """sacreBLEU's BLEU for a language. Raises UserError, with the pip command, if a package is missing."""
    base = _base(target_language)
    tokenizer = _TOKENIZERS.get(base, "13a")
    try:
        return BLEU(tokenize=tokenizer, effective_order=effective_order)
    except (RuntimeError, AssertionError) as error:  # MeCab missing, or with another dictionary
        missing = f"target language {target_language} needs sacreBLEU's tokenizer {tokenizer}"
        raise UserError(f'{missing}: pip install "sacrebleu[{base}]"') from error


def _interval(hypotheses: Sequence[str], references: Sequence[str], language: str) -> tuple[float, float] | None:
    """The 2.5th and 97.5th percentile of BLEU over resamples of the sentences (Koehn, 2004)."""
    if len(hypotheses) < 2:
        return None
    metric = bleu_metric(language, effective_order=True)  # only its counts are used, which effective_order keeps
    sentences = [metric.sentence_score(h, [r]) for h, r in zip(hypotheses, references, strict=True)]
    statistics = np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in sentences], dtype=np.int64)
    generator = np.random.default_rng(_SACREBLEU_SEED)
    resampled = []
    for _ in range(_RESAMPLES):
        drawn = statistics[generator.choice(len(statistics), size=len(statistics))].sum(axis=0).tolist()
        sys_len, ref_len, correct, total = drawn[0], drawn[1], drawn[2:6], drawn[6:]
        resampled.append(metric.compute_bleu(correct, total, sys_len, ref_len, smooth_method="exp").score)
    resampled.sort()
    return resampled[_RESAMPLES // 40], resampled[-1 - _RESAMPLES // 40]


@lru_cache(maxsize=2)
def _moses(language: str) -> tuple[Any, Any]:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    return MosesPunctNormalizer(language), MosesTokenizer(language)


@contextmanager
def _sacrebleu_messages() -> Iterator[list[str]]:
    """Collect the messages that sacreBLEU would log, so that the caller can show them once."""
    messages: list[str] = []
    logger = logging.getLogger("sacrebleu")

    def keep(record: logging.LogRecord) -> bool:
        messages.append(record.getMessage())
        return False

    logger.addFilter(keep)
    try:
        yield messages
    finally:
        logger.removeFilter(keep)
