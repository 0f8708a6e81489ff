"""A classifier's temperature, calibration error, scores by class and confusion table, against NumPy on the probabilities that
predict prints.

usage: calibration.py METAFORMER
"""
import json
import random
import sys

import numpy as np

from common import in_folder, run, run_cases, sets

PROGRAM = sys.argv[1]
WORDS = ["bad", "fair", "good", "great"]


def rows(draw, count, classes, noise):
    """Texts whose last word gives the label, except a fraction `noise` of them."""
    picked = [draw.randrange(classes) for _ in range(count)]
    labels = [draw.randrange(classes) if draw.random() < noise else word for word in picked]
    return [(f"film {draw.randrange(30)} is {draw.choice('abcdef')} {WORDS[word]}", WORDS[label])
            for word, label in zip(picked, labels)]


def train(folder, classes, noise, *settings):
    draw = random.Random(classes)
    tables = {name: rows(draw, count, classes, noise) for name, count in (("train", 300), ("validation", 200), ("test", 150))}
    for name, table in tables.items():
        (folder / f"{name}.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in table))
    run(PROGRAM, "train", "--config", "text_classifier.yaml", "--out", folder / "run",
        *sets(f"data.path={folder}/train.csv", f"data.validation_path={folder}/validation.csv", f"data.test_path={folder}/test.csv",
              "task.baselines=false", "train.steps=40", "train.eval_interval=20", "train.learning_rate=0.01", "model.layers=1",
              "model.width=16", *settings))
    return tables


def predictions(folder, table, *options):
    """Probabilities [texts, classes], the true classes and the predicted labels."""
    out = run(PROGRAM, "predict", "--run", folder / "run", "--json", *options, text="".join(text + "\n" for text, _ in table))
    answers = [json.loads(line) for line in out.splitlines()]
    names = list(answers[0]["probabilities"])
    probabilities = np.array([[answer["probabilities"][name] for name in names] for answer in answers])
    return probabilities, np.array([names.index(label) for _, label in table]), [answer["label"] for answer in answers], names


def scaled(probabilities, temperature):
    """softmax(log p / T), which equals softmax(z / T)."""
    logits = np.log(probabilities) / temperature
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def log_loss(probabilities, labels):
    return -np.log(probabilities[np.arange(len(labels)), labels]).mean()


def best_temperature(probabilities, labels):
    low, high = 0.05, 20
    for _ in range(6):
        grid = np.geomspace(low, high, 81)
        best = int(np.argmin([log_loss(scaled(probabilities, temperature), labels) for temperature in grid]))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 80)]
    return grid[best]


def calibration_error(probabilities, labels):
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    bins = np.minimum((confidence * 15).astype(int), 14)
    return sum(abs((confidence - right)[bins == bin].sum()) for bin in range(15)) / len(labels)


def near(value, expected, tolerance=1e-5):
    assert np.isclose(value, expected, rtol=tolerance, atol=tolerance), f"{value}, expected {expected}"


def check_scores(evaluation, probabilities, labels, names):
    predicted = probabilities.argmax(1)
    for number, name in enumerate(names):
        counts = evaluation["classes"][name]
        is_true, is_predicted = labels == number, predicted == number
        both = (is_true & is_predicted).sum()
        assert counts["texts"] == is_true.sum() and counts["predicted"] == is_predicted.sum() and counts["correct"] == both
        assert ("precision" in counts) == bool(is_predicted.any()) and ("recall" in counts) == bool(is_true.any())
        if is_predicted.any():
            near(counts["precision"], both / is_predicted.sum(), 1e-12)
        if is_true.any():
            near(counts["recall"], both / is_true.sum(), 1e-12)
        for other, other_name in enumerate(names):
            assert evaluation["confusion"][name][other_name] == (is_true & (predicted == other)).sum()


def classifier(folder, classes, noise, *settings):
    tables = train(folder, classes, noise, *settings)
    raw, labels, _, _ = predictions(folder, tables["validation"], "--uncalibrated")
    summary = json.loads((folder / "run/summary.json").read_text())
    fitted = summary["temperature"]
    near(fitted, best_temperature(raw, labels), 1e-3)
    assert json.loads((folder / "run/checkpoints/best/meta.json").read_text())["temperature"] == fitted

    raw, labels, raw_labels, names = predictions(folder, tables["test"], "--uncalibrated")
    calibrated, _, calibrated_labels, _ = predictions(folder, tables["test"])
    assert raw_labels == calibrated_labels
    assert np.allclose(calibrated, scaled(raw, fitted), rtol=1e-5, atol=1e-7)
    evaluation = json.loads(run(PROGRAM, "evaluate", "--run", folder / "run", "--split", "test", "--json"))
    near(evaluation["loss"], log_loss(raw, labels))
    near(evaluation["scaled_loss"], log_loss(calibrated, labels))
    near(evaluation["calibration_error"], calibration_error(raw, labels))
    near(evaluation["scaled_calibration_error"], calibration_error(calibrated, labels))
    near(summary["test"]["scaled_calibration_error"], evaluation["scaled_calibration_error"], 1e-12)
    check_scores(evaluation, raw, labels, names)
    errors = [evaluation[key] for key in ("calibration_error", "scaled_calibration_error")]
    return f"temperature {fitted:.4f}, calibration error {errors[0]:.4f} and {errors[1]:.4f}"


run_cases({
    "two classes": in_folder(classifier, 2, 0.3),
    "four classes": in_folder(classifier, 4, 0.4),
    "two classes, little noise": in_folder(classifier, 2, 0.1, "train.steps=80", "task.label_smoothing=0.1"),
})
