"""The vocabulary of the word tokenizer against Python's own Unicode tables (unicodedata, str.lower): for code points of all planes
and for mixed text; with white space kept and dropped, with and without lower case.

usage: compare_words.py METAFORMER
"""
import collections
import json
import sys
import unicodedata

from common import in_folder, run, run_cases
from mixed_text import every_character, mixed_text

# Unicode's White_Space, and spaces without width.
SPACES = set("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\u200b\ufeff") | {chr(c) for c in range(0x2000, 0x200B)}
CONFIG = """
data: {path: text.txt, validation_path: text.txt, cache: false}
task: %s
"""


def kind_of(character):
    if character in SPACES:
        return "space"
    category = unicodedata.category(character)
    if category[0] in "LN":
        return "word"
    return "attached" if category[0] == "M" or character in "\u200c\u200d" else "mark"


def bare_end(text, kinds, start):
    """The end of the word or mark that starts at `start`."""
    at = start + 1
    while at < len(text):
        joins = text[at] in "'\u2019" and at + 1 < len(text) and kinds[at + 1] == "word"
        if kinds[at] != "attached" and not (kinds[start] == "word" and (kinds[at] == "word" or joins)):
            break
        at += 1
    return at


def tokens_of(text, kept, lowercase):
    kinds = [kind_of(character) for character in text]
    tokens, at = [], 0
    while at < len(text):
        if kinds[at] == "space":
            leads = text[at] == " " and at + 1 < len(text) and kinds[at + 1] != "space"
            end = bare_end(text, kinds, at + 1) if leads and kept else at + 1
        else:
            end = bare_end(text, kinds, at)
        if kept or kinds[at] != "space":
            tokens.append(text[at:end].lower() if lowercase else text[at:end])
        at = end
    return tokens


def expected_words(text, kept, lowercase):
    counts = collections.Counter(tokens_of(text, kept, lowercase))
    if kept:
        counts[" "] = sys.maxsize
    return sorted(counts, key=lambda word: (-counts[word], word.encode()))


def learned_words(folder, text, kept, lowercase):
    task = "language_model" if kept else "masked_language_model"
    options = {"vocabulary": 1 << 24, "min_count": 1, "lowercase": lowercase, "whitespace": "kept" if kept else "dropped"}
    (folder / "text.txt").write_bytes(text.encode())
    (folder / "words.yaml").write_text(CONFIG % task)
    tokenizer = "data.tokenizer=" + json.dumps({"kind": "word", **options})
    run(sys.argv[1], "data", "tokenizer", "words.yaml", "--set", tokenizer, "--out", "tokenizer.json", cwd=folder)
    return json.loads((folder / "tokenizer.json").read_text())["words"]


def compare(folder, text, kept, lowercase):
    expected, learned = expected_words(text, kept, lowercase), learned_words(folder, text, kept, lowercase)
    differing = [pair for pair in zip(learned, expected) if pair[0] != pair[1]]
    assert not differing, f"learned {differing[0][0]!r}, expected {differing[0][1]!r}"
    assert len(learned) == len(expected), f"learned {len(learned)} words, expected {len(expected)}"
    return f"{len(learned)} words equal"


def known(text):
    """The text without characters that a newer version of Unicode may have assigned."""
    return "".join(c for c in text if unicodedata.category(c) != "Cn")


if __name__ == "__main__":
    lines = ["“Don’t”, she said—and left…", "ΟΔΟΣ ΣΑΣ, ΑΣ'Σ İSTANBUL straße STRASSE ẞ", "ПРИВЕТ, Мир! ÜBER naïve NAÏVE 3½ ١٢٣", "l'été"]
    texts = {"every character": known(every_character()), "mixed text": known(mixed_text(300_000, 3, lines))}
    run_cases({f"{name}, white space {'kept' if kept else 'dropped'}, {'lower case' if lowercase else 'as written'}":
               in_folder(compare, text, kept, lowercase)
               for name, text in texts.items() for kept in (True, False) for lowercase in (True, False)})
