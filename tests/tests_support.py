"""Small things that tests share: a toy language that can be learned in seconds."""

import random
from pathlib import Path

TOY_WORDS = {"a": "ein", "the": "das", "dog": "Hund", "cat": "Katze", "bird": "Vogel", "sees": "sieht", "likes": "mag",
             "red": "rot", "big": "groß", "and": "und", "now": "jetzt", "here": "hier"}  # fmt: skip


def toy_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Distinct sentences of 4 to 9 words; the translation is word for word, in reverse order."""
    generator = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        words = [generator.choice(list(TOY_WORDS)) for _ in range(generator.randrange(4, 10))]
        found[" ".join(words)] = " ".join(TOY_WORDS[word] for word in reversed(words))
    return list(found.items())


def write_pairs(folder: Path, name: str, pairs: list[tuple[str, str]]) -> list[str]:
    """Two files of plain text, given as the command line wants them: [source path, target path]."""
    paths = []
    for column, language in enumerate(("en", "de")):
        path = folder / f"{name}.{language}"
        path.write_text("".join(pair[column] + "\n" for pair in pairs), encoding="utf-8")
        paths.append(str(path))
    return paths
