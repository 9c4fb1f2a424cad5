"""The special ids that begin every vocabulary, and their spellings."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN_TEXT = "⁇"  # an unknown id in text, without added spaces
