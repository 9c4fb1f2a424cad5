"""The ids that every vocabulary begins with, and how they are spelled."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN_TEXT = "⁇"  # how text shows an unknown id, with no blanks around it but those of the sentence
