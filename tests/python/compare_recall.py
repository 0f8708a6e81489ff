#!/usr/bin/env python3
"""Compares rows of the recall tasks with generators in NumPy, which follow the definitions of the papers: targets are exactly those
of a solver that reads the row, and statistics of rows have the same distribution (chi-square test of two samples).

  compare_recall.py METAFORMER
"""
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import stats

from common import run, run_cases, sets

METAFORMER = sys.argv[1]
COUNT = 4000
SMALLEST_P = 1e-4  # the draws of both are fixed, so that a correct generator does not fail by chance


def ours(task):
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "rows.yaml"
        config.write_text("model: {context: 1024}\n")
        shown = run(METAFORMER, "data", "rows", "--config", config, *sets(f"task={task}"), "--count", COUNT, "--json")
    return [(row["ids"], row["targets"]) for row in json.loads(shown)["rows"]]


def same_distribution(rows, references, statistic):
    """`statistic` returns the categories of a row."""
    counts = [Counter(category for row in sample for category in statistic(*row)) for sample in (rows, references)]
    assert set(counts[0]) <= set(counts[1]) or sum(counts[0][c] for c in set(counts[0]) - set(counts[1])) < 10, counts
    categories = [c for c in set(counts[0]) | set(counts[1]) if counts[0][c] + counts[1][c] >= 10]
    if len(categories) < 2:
        assert categories
        return 1
    table = np.array([[count[c] for c in categories] for count in counts])
    p = stats.chi2_contingency(table).pvalue
    assert p > SMALLEST_P, (p, table)
    return p


def answers(ids, targets):
    return [(place, target) for place, target in enumerate(targets) if target >= 0]


def check(task, reference, solve, *statistics):
    random = np.random.default_rng(1)
    rows, references = ours(task), [reference(random) for _ in range(COUNT)]
    for ids, targets in rows + references:
        assert targets == solve(ids, targets), (ids, targets)
    assert {len(ids) for ids, _ in rows} == {len(ids) for ids, _ in references}
    return f"smallest p {min(same_distribution(rows, references, statistic) for statistic in statistics):.3g}"


def to_lists(ids, targets):
    return [int(i) for i in ids], [int(t) for t in targets]


def check_recall(vocabulary=24, pairs=3, updates=0, queries=1, length=32, power=0.01, filler="zero"):
    half, prompt = vocabulary // 2, 2 * (pairs + updates)

    def reference(random):
        ids, targets = np.zeros(length, int), np.full(length, -1)
        keys = random.choice(np.arange(1, half), pairs, replace=False)
        values = random.choice(np.arange(half, vocabulary), pairs, replace=False)
        ids[0:2 * pairs:2], ids[1:2 * pairs:2] = keys, values
        for i, changed in enumerate(random.choice(pairs, updates, replace=False)):
            values[changed] = random.choice([v for v in range(half, vocabulary) if v != values[changed]])
            ids[2 * (pairs + i):2 * (pairs + i) + 2] = keys[changed], values[changed]
        gaps = np.arange(1, (length - prompt) // 2 + 1, dtype=float)
        slots = random.choice(len(gaps), pairs * queries, replace=False, p=gaps**(power - 1) / np.sum(gaps**(power - 1)))
        asked = prompt + 2 * slots
        if filler == "random":
            ids[prompt:] = random.integers(0, vocabulary, length - prompt)
        ids[asked], targets[asked] = np.tile(keys, queries), np.tile(values, queries)
        return to_lists(ids, targets)

    def solve(ids, targets):
        known = dict(zip(ids[0:prompt:2], ids[1:prompt:2]))
        return [known[i] if t >= 0 else -1 for i, t in zip(ids, targets)]

    options = f"pairs: {pairs}, updates: {updates}, queries: {queries}, gap_power: {power}, filler: {filler}"
    return check(f"{{kind: recall, vocabulary: {vocabulary}, length: {length}, {options}}}", reference, solve,
                 lambda ids, targets: [place for place, _ in answers(ids, targets)],
                 lambda ids, targets: [tuple(place for place, _ in answers(ids, targets))[:2]],
                 lambda ids, targets: ids[:prompt], lambda ids, targets: ids[prompt:],
                 lambda ids, targets: [ids[0:prompt:2].index(ids[answers(ids, targets)[0][0]])])


def check_induction(vocabulary=9, length=16, triggers=3):
    mark = vocabulary - 1

    def reference(random):
        ids = random.integers(0, mark, length)
        ids[-1] = mark
        places = np.sort(random.integers(0, length - 2, 1 if random.random() < 0.5 else triggers))
        answer, last = ids[places[0] + 1], -2
        for place in places:
            if place - last > 1:
                ids[place], ids[place + 1], last = mark, answer, place
        return to_lists(ids, [-1] * (length - 1) + [answer])

    def solve(ids, _):
        return [-1] * (length - 1) + [ids[ids.index(mark) + 1]]

    return check(f"{{kind: induction, vocabulary: {vocabulary}, length: {length}, triggers: {triggers}}}", reference, solve,
                 lambda ids, targets: [ids.index(mark)], lambda ids, targets: [ids.count(mark)], lambda ids, targets: [targets[-1]],
                 lambda ids, targets: [place for place, i in enumerate(ids) if i == mark])


def check_selective_copy(vocabulary=8, length=24, tokens=5):
    blank, mark = vocabulary - 2, vocabulary - 1

    def reference(random):
        copied = list(random.integers(0, blank, tokens))
        row = list(copied)
        for place in sorted(random.integers(0, tokens, length - 2 * tokens - 1), reverse=True):
            row.insert(place, blank)
        return to_lists(row + [mark] + [blank] * tokens, [-1] * (length - tokens) + copied)

    def solve(ids, _):
        return [-1] * (length - tokens) + [i for i in ids[:ids.index(mark)] if i != blank]

    return check(f"{{kind: selective_copy, vocabulary: {vocabulary}, length: {length}, tokens: {tokens}}}", reference, solve,
                 lambda ids, targets: [place for place, i in enumerate(ids[:ids.index(mark)]) if i != blank],
                 lambda ids, targets: targets[-tokens:])


def check_bits(kind, answer, length=10):
    def reference(random):
        bits = list(random.integers(0, 2, length - 1))
        return to_lists(bits + [2], [-1] * (length - 1) + [answer(bits)])

    return check(f"{{kind: {kind}, length: {length}}}", reference,
                 lambda ids, _: [-1] * (length - 1) + [answer(ids[:-1])],
                 lambda ids, targets: [sum(ids[:-1])], lambda ids, targets: [targets[-1]],
                 lambda ids, targets: [place for place, i in enumerate(ids) if i == 1])


def check_in_context_recall(vocabulary, length=24, noise=0.0, noise_vocabulary=0):
    symbols = vocabulary - noise_vocabulary
    keys = symbols // 2

    def reference(random):
        value_of, ids, targets = {}, [], []
        sure = random.integers(length // 2 - 1)
        for i in range(length // 2 - 1):
            if i != sure and random.random() < noise:
                ids += list(random.integers(symbols, vocabulary, 2))
                targets += [-1, -1]
                continue
            key = random.integers(keys)
            known = key in value_of
            value = value_of.setdefault(key, random.integers(keys, symbols))
            ids += [key, value]
            targets += [value if known else -1, -1]
        last = random.choice(list(value_of))
        return to_lists(ids + [last], targets + [value_of[last]])

    def solve(ids, _):
        value_of, targets = {}, []
        for key, value in zip(ids[0::2], ids[1::2] + [None]):
            targets += [value_of.get(key, -1), -1]
            if key < keys:
                value_of.setdefault(key, value)
        return targets[:-1]

    options = f", noise: {noise}, noise_vocabulary: {noise_vocabulary}" if noise else ""
    return check(f"{{kind: in_context_recall, vocabulary: {vocabulary}, length: {length}{options}}}", reference, solve,
                 lambda ids, targets: [len(answers(ids, targets))], lambda ids, targets: ids,
                 lambda ids, targets: [place for place, _ in answers(ids, targets)],
                 lambda ids, targets: [sum(i >= symbols for i in ids)])


def check_memorisation(vocabulary=21, length=12):
    keys = (vocabulary - 1) // 2
    value_of = {}
    for ids, targets in ours(f"{{kind: memorisation, vocabulary: {vocabulary}, length: {length}}}"):
        for key, value in zip(ids[0::2], targets[1::2]):
            assert value_of.setdefault(key, value) == value
    assert len(set(value_of.values())) == keys == len(value_of)

    def reference(random):
        asked = random.integers(0, keys, length // 2)
        return to_lists(np.stack([asked, np.full_like(asked, vocabulary - 1)], 1).flatten(),
                        np.stack([np.full_like(asked, -1), [value_of[k] for k in asked]], 1).flatten())

    return check(f"{{kind: memorisation, vocabulary: {vocabulary}, length: {length}}}", reference,
                 lambda ids, _: [t for key in ids[0::2] for t in (-1, value_of[key])], lambda ids, targets: ids)


def check_fuzzy_recall(vocabulary=16, length=60, longest=3):
    """Compares the answers of every row with a solver, and only the distribution of the sizes of keys and values."""
    keys, padding = (vocabulary - 1) // 2, vocabulary - 1
    sizes = Counter()
    for ids, targets in ours(f"{{kind: fuzzy_recall, vocabulary: {vocabulary}, length: {length}, longest: {longest}}}"):
        sequence, value_of, solved = ids + [targets[-1]], {}, [-1] * len(ids)
        i = next(place for place, token in enumerate(sequence) if token != padding)
        while i < len(sequence):
            middle = next(place for place in range(i, len(sequence)) if sequence[place] >= keys)
            end = next((place for place in range(middle, len(sequence)) if sequence[place] < keys), len(sequence))
            key, value = tuple(sequence[i:middle]), sequence[middle:end]
            assert len(set(key)) == len(key) and len(set(value)) == len(value)
            sizes[len(key), len(value)] += 1
            if key in value_of:
                assert value_of[key] == value
                solved[middle - 1:end - 1] = value
            value_of[key] = value
            i = end
        assert targets == solved, (ids, targets, solved)
        assert targets[-1] >= 0
    shares = np.array([sizes[k, v] for k in range(1, longest + 1) for v in range(1, longest + 1)]) / sum(sizes.values())
    assert len(sizes) == longest**2 and np.all(np.abs(shares - 1 / longest**2) < 0.05), shares
    return f"shares {shares.min():.3f} to {shares.max():.3f}"


def check_compression(vocabulary=9, length=12):
    return check(f"{{kind: compression, vocabulary: {vocabulary}, length: {length}}}",
                 lambda random: to_lists(*[list(random.integers(0, vocabulary - 1, length - 1)) + [vocabulary - 1]] * 2),
                 lambda ids, _: ids, lambda ids, targets: ids)


CASES = {
    "recall": check_recall,
    "recall, gaps equally likely": lambda: check_recall(power=1),
    "recall with updates": lambda: check_recall(updates=2, power=0.5),
    "recall with several queries and random fillers": lambda: check_recall(queries=2, filler="random"),
    "induction": check_induction,
    "induction with one mark": lambda: check_induction(triggers=1),
    "selective copy": check_selective_copy,
    "parity": lambda: check_bits("parity", lambda bits: sum(bits) % 2),
    "majority": lambda: check_bits("majority", lambda bits: int(2 * sum(bits) > len(bits))),
    "in-context recall": lambda: check_in_context_recall(12),
    "in-context recall with noise": lambda: check_in_context_recall(16, noise=0.2, noise_vocabulary=4),
    "fuzzy recall": check_fuzzy_recall,
    "memorisation": check_memorisation,
    "compression": check_compression,
}

if __name__ == "__main__":
    run_cases(CASES)
