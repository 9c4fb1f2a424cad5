"""Decodes a file with Marian or CTranslate2 in the peer's own environment, and prints one line of JSON.

python decode_peer.py marian|ctranslate2 TEXT THREADS OPTIONS_OR_MODEL SENTENCEPIECE_MODEL
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from workload import rates


def translator(peer: str, threads: int, what: str, model: str) -> Callable[[list[str]], list[str]]:
    """A function that translates lines with the loaded model."""
    if peer == "marian":
        import pymarian

        tool = pymarian.Translator(what)
        return lambda lines: list(tool.translate(lines))
    import ctranslate2
    import sentencepiece

    units = sentencepiece.SentencePieceProcessor(model_file=model)
    engine = ctranslate2.Translator(what, device="cpu", inter_threads=threads, intra_threads=1)

    def translate(lines: list[str]) -> list[str]:
        pieces = units.encode(lines, out_type=str)
        found = engine.translate_batch(pieces, beam_size=5, max_batch_size=64, max_decoding_length=60)
        return [str(units.decode(result.hypotheses[0])) for result in found]

    return translate


def main(peer: str, text: str, threads: str, what: str, model: str) -> None:
    lines = Path(text).read_text(encoding="utf-8").splitlines()
    translate = translator(peer, int(threads), what, model)
    translate(lines[:32])
    began = time.monotonic()
    found = translate(lines)
    print(json.dumps(rates(found, time.monotonic() - began, Path(model))))


if __name__ == "__main__":
    main(*sys.argv[1:])
