#!/usr/bin/env python3
"""`metaformer compare` gives the means, intervals and p values of SciPy, for 2 to 30 paired seeds. Trained classifiers write the
predictions that it tests. Python's csv module reads its own rows back from an exported file. The tables of experiments have the
intervals, correlations and fitted lines of SciPy.

  compare_statistics.py METAFORMER
"""
import csv
import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy import stats

from common import in_folder, run, run_cases

TOLERANCE = 1e-10
METAFORMER = sys.argv[1]


def compare(*arguments):
    return json.loads(run(METAFORMER, "compare", *arguments, "--json"))


def close(ours, theirs):
    assert abs(ours - theirs) <= TOLERANCE * max(1, abs(theirs)), (ours, theirs)


def write_results(path, losses):
    """losses: {config: {seed: loss}}"""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["key", "config", "overrides", "seed", "val_loss", "settings"])
        for layers, (config, by_seed) in enumerate(losses.items(), 1):
            settings = json.dumps({"model.layers": str(layers)})
            for seed, loss in by_seed.items():
                writer.writerow([f"{config}-{seed}", config, "", seed, repr(float(loss)), settings])


def check_paired_t(folder):
    random = np.random.default_rng(0)
    for n in range(2, 31):
        reference, other = random.normal(2, 0.3, n), random.normal(2.1, 0.3, n)
        order = random.permutation(n)  # the rows of a file may have any order
        write_results(folder / "results.csv", {"a": dict(enumerate(reference)), "b": {int(i): other[i] for i in order}})
        margin = 0.3
        first, second = compare(folder / "results.csv", "--margin", margin)["groups"]
        for group, values in ((first, reference), (second, other)):
            close(group["metrics"]["val_loss"]["mean"], np.mean(values))
            close(group["metrics"]["val_loss"]["sd"], np.std(values, ddof=1))
        ours, theirs = second["metrics"]["val_loss"]["difference"], stats.ttest_rel(other, reference)
        low, high = theirs.confidence_interval(0.95)
        assert ours["pairs"] == n
        close(ours["mean"], np.mean(other - reference))
        close(ours["low"], low)
        close(ours["high"], high)
        close(ours["p"], theirs.pvalue)
        assert ours["equivalent"] == bool(-margin < low and high < margin), (n, low, high)


def make_run(folder, steps, seed, probabilities, labels):
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(run(METAFORMER, "config", "dump", "--config", "imdb_metric.yaml", "--set",
                                            f"train.seed={seed}", "--set", f"train.steps={steps}"))
    accuracy = float(np.mean(probabilities.argmax(1) == labels))
    (folder / "summary.json").write_text(json.dumps({
        "steps": 1, "train_loss": 1.0, "val_loss": 1.0, "best_val_loss": 1.0, "best_val_error": 0.1, "best_step": 1,
        "validation": {"accuracy": 0.9}, "test": {"accuracy": accuracy}, "parameters": 1, "mixer_parameters": 1}))
    save_file({"probabilities": probabilities, "labels": labels}, folder / "test_predictions.safetensors")


def check_mcnemar(folder):
    random = np.random.default_rng(1)
    for case, (texts, error) in enumerate(((20, 0.5), (500, 0.1), (25000, 0.12), (300, 0.0))):
        labels = random.integers(0, 2, texts)
        runs = {}
        for steps, name in enumerate("ab", 1000):
            for seed in (1, 2):
                right = random.random(texts) >= error
                confidence = random.uniform(0.5001, 1, texts)
                of_class_1 = np.where((labels == 1) == right, confidence, 1 - confidence)
                make_run(folder / str(case) / name / f"run-{seed}", steps, seed,
                         np.stack([1 - of_class_1, of_class_1], 1), labels)
                runs[name, seed] = right
        tests = compare(folder / str(case) / "a", folder / str(case) / "b")["groups"][1]["mcnemar"]
        assert [test["seed"] for test in tests] == [1, 2]
        for test in tests:
            theirs, ours = runs["a", test["seed"]], runs["b", test["seed"]]
            b, c = int(np.sum(theirs & ~ours)), int(np.sum(ours & ~theirs))
            assert (test["only_reference"], test["only_this"]) == (b, c)
            close(test["p_exact"], stats.binomtest(min(b, c), b + c, 0.5).pvalue if b + c else 1)
            statistic = (abs(b - c) - 1) ** 2 / (b + c) if b + c else 0
            close(test["chi_square"], statistic)
            close(test["p_chi_square"], stats.chi2.sf(statistic, 1))


CLASSIFIER = """
task: classification
data: {path: train.csv, validation_path: validation.csv, test_path: test.csv}
model: {layers: 1, heads: 2, width: 16, context: 32}
train: {steps: 20, batch_size: 4, eval_interval: 10, checkpoint_interval: 10, schedule: {warmup_steps: 0}}
"""


def write_table(path, count, random):
    """Texts of different lengths, so that batches by length have another order."""
    rows = [(label, " ".join(random.choice(["good" if label == "yes" else "bad", "film", "plot", "a", "the"],
                                           random.integers(2, 20)))) for label in random.choice(["no", "yes"], count)]
    path.write_text("label,text\n" + "".join(f"{label},{text} {i}\n" for i, (label, text) in enumerate(rows)))
    return [label for label, _ in rows]


def check_predictions(folder):
    random = np.random.default_rng(2)
    (folder / "classifier.yaml").write_text(CLASSIFIER)
    write_table(folder / "train.csv", 300, random)
    labels = {split: write_table(folder / f"{split}.csv", count, random) for split, count in (("validation", 80), ("test", 101))}
    right = {}
    for mixer in ("metric", "identity"):
        run(METAFORMER, "train", "--config", "classifier.yaml", "--set", f"model.mixer={mixer}", "--out", f"runs/{mixer}",
            "--quiet", cwd=folder)
        summary = json.loads((folder / "runs" / mixer / "summary.json").read_text())
        names = json.loads((folder / "runs" / mixer / "checkpoints/best/labels.json").read_text())
        names = names if isinstance(names, list) else names["labels"]
        for split, error in (("validation", summary["best_val_error"]), ("test", 1 - summary["test"]["accuracy"])):
            predictions = load_file(folder / "runs" / mixer / f"{split}_predictions.safetensors")
            assert [names[label] for label in predictions["labels"]] == labels[split]  # in the order of the file
            assert np.allclose(predictions["probabilities"].sum(1), 1, rtol=0, atol=1e-12)
            right[mixer] = predictions["probabilities"].argmax(1) == predictions["labels"]
            assert abs(1 - np.mean(right[mixer]) - error) < 1e-12, split
    [test] = compare(folder / "runs/metric", folder / "runs/identity")["groups"][1]["mcnemar"]
    assert test["only_this"] == np.sum(right["identity"] & ~right["metric"])


def check_export(folder):
    """Rows can be exported to another file, again to the same file, and back; a failed comparison writes nothing."""
    name = 'a, "b"\n\tc'
    write_results(folder / "in.csv", {name: {0: 1.5, 1: 2.25}})
    rows = [{"config": name, "seed": "0", "val_loss": "1.5"}, {"config": name, "seed": "1", "val_loss": "2.25"}]
    for source, target in (("in.csv", "out.csv"), ("in.csv", "out.csv"), ("out.csv", "in.csv")):
        run(METAFORMER, "compare", source, "--export", target, "--export-only", cwd=folder)
        with (folder / target).open(newline="") as file:
            assert [{key: row[key] for key in rows[0]} for row in csv.DictReader(file)] == rows, (source, target)
    run(METAFORMER, "compare", "in.csv", "--reference", "nowhere", "--export", "new.csv", code=2, cwd=folder)
    assert not (folder / "new.csv").exists()


def check_tables(folder):
    """The computations of the tables of experiments, which do without NumPy: intervals, ranks with ties, a fitted line, the choice of a
    mixer's best settings."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments"))
    import recall_language_table
    import recall_table
    import scaling_table
    from lib import student

    random = np.random.default_rng(3)
    for count in (3, 5, 10, 16):
        values, others = random.normal(size=count).tolist(), np.round(random.normal(size=count), 0).tolist()
        close(recall_language_table.correlation(list(zip(values, others))), stats.spearmanr(values, others).statistic)
        mean, half = recall_table.interval(values[:10])
        low, high = stats.t.interval(0.95, len(values[:10]) - 1, mean, stats.sem(values[:10]))
        assert abs(mean - half - low) < 1e-3 and abs(mean + half - high) < 1e-3, (mean, half, low, high)  # t has four digits
        slope, intercept, deviation, _, squares = scaling_table.fit(list(zip(values, others)))
        theirs = stats.linregress(values, others)
        for ours, of_scipy in ((slope, theirs.slope), (intercept, theirs.intercept), (deviation / squares**0.5, theirs.stderr)):
            close(ours, of_scipy)
    for degrees in range(1, len(student.T_975) + 1):
        assert abs(student.t_975(degrees) - stats.t.ppf(0.975, degrees)) < 1e-3, degrees
    cell = "task.length=64 task.pairs=4 model.width=32 model.mixer.kind=hyena train.optimizer.betas=[0.9, 0.999] train.learning_rate="
    noisy = "task.kind=in_context_recall task.noise=0.2 model.mixer.kind=hyena train.learning_rate=1"
    runs = [(cell + "1", 0.2, 0.5), (cell + "2", 0.1, 0.25), (cell + "1", 0.2, 0.5), (cell + "2", 0.4, 0.75), (noisy, 1, 1)]
    with (folder / "recall.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("overrides", "accuracy", "test_accuracy"), *runs])
    assert recall_table.read(folder / "recall.csv") == {("hyena", (64, 4, 32)): [25, 75], ("hyena", "noisy_recall"): [100]}


if __name__ == "__main__":
    run_cases({check.__name__: in_folder(check) for check in (check_paired_t, check_mcnemar, check_predictions, check_export, check_tables)})
