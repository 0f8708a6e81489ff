"""BLEU and chrF against the package sacrebleu, and ROUGE against rouge-score: of every line and of the corpus, for lines of
words, numbers, marks, entities and several scripts, for unusual text, and for bytes that are not UTF-8.

usage: compare_overlap.py SCORE_OVERLAP
"""
import functools
import json
import random
import sys
import unicodedata

import numpy as np
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU, CHRF

from common import in_folder, run, run_cases
from mixed_text import mixed_text

TOLERANCE = 1e-6
WORDS = ["the", "The", "a", "of", "house", "HOUSE", "cat", "don't", "it's", "well-known", "x", "U.S.", "e.g.", "Dr.", "A-4",
         "Größe", "ÄRGER", "Straße", "naïve", "café", "Ångström", "ЁЖИК", "ёжик", "ΣΟΦΟΣ", "σοφος", "Ο.Σ.", "İstanbul", "5\u212a",
         "東京", "こんにちは。", "北京，中国", "서울", "हिन्दी", "\U0001f600", "<skipped>", "soft-\nhyphen", "two\nlines", "\u00a0", "a\u3000b",
         "http://a.b/c?d=e&f", "#tag", "@name", "50%", "a_b", "[1]", "~"]
NUMBERS = ["1", "42", "1,000", "1,234,567.89", "3.14", ".5", "5.", "2-3", "1990-2000", "-7", "10:30", "1/2", "4,", "$9.99", "3,a"]
MARKS = list(".,;:!?-()\"'`/") + ["...", "--", "–", "„", "“", "”", "’", "«", "»", " .", ",,", "-\n"]
ENTITIES = ["&quot;", "&amp;", "&lt;", "&gt;", "&amp;quot;", "&amp;lt;", "&apos;", "&", "&QUOT;"]
METRICS = {"13a": BLEU(force=True), "13a_lowercase": BLEU(lowercase=True, force=True), "none": BLEU(tokenize="none", force=True),
           "none_lowercase": BLEU(tokenize="none", lowercase=True, force=True)}


def word(draw):
    return draw.choice(draw.choices([WORDS, NUMBERS, MARKS, ENTITIES], [10, 3, 3, 1])[0])


def line(draw, longest):
    words = [word(draw) for _ in range(draw.randint(0, longest))]
    return "".join(part + draw.choices([" ", "", "  "], [8, 2, 1])[0] for part in words)


def changed(draw, text):
    """The text with words dropped, swapped and replaced, more in some lines than in others."""
    words, rate = text.split(" "), draw.choice([0, 0.1, 0.3, 0.9])
    words = [word(draw) if draw.random() < rate / 2 else old for old in words if draw.random() >= rate / 2]
    for place in range(len(words) - 1):
        if draw.random() < rate / 4:
            words[place], words[place + 1] = words[place + 1], words[place]
    return " ".join(words)


def usual_lines(count=1000, longest=40):
    draw = random.Random(1)
    references = [line(draw, longest) for _ in range(count)]
    return [changed(draw, text) for text in references], references


def odd_lines(count=300):
    draw = random.Random(2)
    text = mixed_text(count * 100, 3, ["The cat, which sat on 1,000 mats, said: \"No.\""]).replace("\0", "")
    references = [text[start:start + 80] for start in range(0, count * 80, 80)]
    return [changed(draw, text) for text in references], references


def broken(draw, text):
    content = bytearray(text.encode(errors="surrogateescape"))
    for place in range(len(content)):
        if draw.random() < 0.03:
            content[place] = draw.randrange(1, 256)
    return content.decode(errors="surrogateescape")


def broken_lines():
    draw = random.Random(4)
    hypotheses, references = usual_lines(300)
    references = [broken(draw, text) for text in references]
    return [broken(draw, changed(draw, text)) for text in references], references


def every_letter():
    """Each assigned character within a word, beside marks, and by itself; capital sigmas beside letters that have cases."""
    points = [chr(point) for point in range(1, 0x110000) if unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs")]
    places = [f"a{c}b {c}. {c},{c}-1{c} {c}" for c in points]
    lines = ["|".join(places[start:start + 100]) for start in range(0, len(places), 100)]
    neighbours = ["", *"aZéÉßαΩάϊΣςЖжԱա京1_-,.:'’· ", "\u0301", "\u00ad", ".a", "'Ω", ". "]
    return lines + [f"{a}Σ{b}" for a in neighbours for b in neighbours]


def require_close(ours, theirs, what):
    assert len(ours) == len(theirs), f"{what}: {len(ours)} and {len(theirs)} values"
    error = np.max(np.abs(np.subtract(ours, theirs)))
    assert error <= TOLERANCE, f"{what}: {ours} and {theirs}"
    return error


def bleu_values(metric, hypotheses, references):
    score = metric.corpus_score(hypotheses, [references])
    return [score.score, score.bp, score.sys_len, score.ref_len, *score.precisions, *score.counts, *score.totals]


def chrf_values(hypotheses, references):
    return [CHRF().corpus_score(hypotheses, [references]).score]


def rouge_values(hypotheses, references):
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    scores = [scorer.score(reference, hypothesis) for hypothesis, reference in zip(hypotheses, references)]
    return np.mean([np.ravel([line[kind] for kind in scorer.rouge_types]) for line in scores], axis=0)


def our_scores(folder, hypotheses, references):
    """The scores that the program prints."""
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        (folder / name).write_bytes(b"".join(text.encode(errors="surrogateescape") + b"\0" for text in lines))
    return json.loads(run(sys.argv[1], folder))


def compare_tokens(folder, references):
    """Compares the tokens of the references, which our_scores has written to `folder`."""
    for name, metric in METRICS.items():
        content = (folder / f"tokens_{name}").read_bytes().decode(errors="surrogateescape")
        for line, text in zip(content.split("\0")[:-1], references, strict=True):
            ours = line.split(" ")[:-1]
            theirs = metric.tokenizer((text.lower() if metric.lowercase else text).rstrip()).split()
            assert ours == theirs, f"{text!r}: {[pair for pair in zip(ours, theirs) if pair[0] != pair[1]][:3]}"


def compare(folder, make_lines):
    hypotheses, references = make_lines()
    ours = our_scores(folder, hypotheses, references)
    compare_tokens(folder, references)
    values_of = {name: functools.partial(bleu_values, metric) for name, metric in METRICS.items()}
    errors = []
    for name, theirs in {**values_of, "chrf": chrf_values, "rouge": rouge_values}.items():
        errors.append(require_close(ours[name]["corpus"], theirs(hypotheses, references), "the corpus"))
        for values, hypothesis, reference in zip(ours[name]["lines"], hypotheses, references, strict=True):
            errors.append(require_close(values, theirs([hypothesis], [reference]), f"{hypothesis!r}, {reference!r}"))
    bleu, chrf, rouge_l = ours["13a"]["corpus"][0], ours["chrf"]["corpus"][0], ours["rouge"]["corpus"][8]
    return (f"{len(references)} lines, BLEU {bleu:.2f}, chrF2 {chrf:.2f}, ROUGE-L {rouge_l:.4f}; "
            f"largest difference {max(errors):.1e}")


def compare_every_letter(folder):
    lines = every_letter()
    our_scores(folder, lines, lines)
    compare_tokens(folder, lines)
    return f"{len(lines)} lines have the same tokens"


def compare_signatures(folder):
    ours = our_scores(folder, ["a"], ["a"])
    for name, metric in {**METRICS, "chrf": CHRF()}.items():
        metric.corpus_score(["a"], [["a"]])
        assert ours[name]["signature"] == str(metric.get_signature()), (ours[name]["signature"], metric.get_signature())
    return ours["13a"]["signature"]


if __name__ == "__main__":
    corpora = {"usual text": usual_lines, "short lines": functools.partial(usual_lines, 300, 4), "odd text": odd_lines,
               "bytes that are not UTF-8": broken_lines}
    run_cases({**{name: in_folder(compare, lines) for name, lines in corpora.items()},
               "tokens of every letter": in_folder(compare_every_letter), "signatures": in_folder(compare_signatures)})
