"""The report page in a browser that can reach no network: nothing is requested, no error is logged, charts have as many
elements as their data, and hover, zoom, smoothing, keyboard and the choice of heads work; also on a dark and on a narrow screen,
on paper, and with 50 runs. A page from `report --watch` follows a run, and keeps what the reader has chosen.

usage: report_page.py METAFORMER
"""
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.numpy import load_file

from chromium import Page
from common import run, sets

MARKUP = '</script><b id="x">&'
FEW = ["train.steps=40", "train.eval_interval=10", "train.log_interval=2", "model.layers=2", "model.width=16", "model.heads=2"]


def train(program, config, out, *settings):
    run(program, "train", "--config", config, "--out", out, *sets(*FEW, *settings))


def equal(found, expected, what):
    assert found == expected, f"{what}: {found!r}, expected {expected!r}"


def check_silence(page, path):
    equal(page.messages, [], "messages of the browser")
    equal(page.requests, [Path(path).resolve().as_uri()], "requests")


def data_of(path):
    return json.loads(re.search(r'id="report-data">(.*?)</script>', Path(path).read_text(), re.S)[1])


# Sorters: two seeds of metric attention, in folders with awkward names, and one of scaled dot product.
def make_sorters(program, folder):
    for seed in (1, 2):
        train(program, "sorter_metric_published.yaml", folder / f"metric <b>&{seed}", f"train.seed={seed}",
              "train.diagnostics_interval=10")
    train(program, "sorter_scaled_dot_product.yaml", folder / "sdp 1", "train.seed=1")
    page = folder.parent / "sorters.html"
    run(program, "report", folder, "-o", page, "--title", MARKUP, "--figures", folder.parent / "figures",
        "--frontier", "parameters", "val_loss")
    prompt = data_of(page)["texts"]["samples"][0]["prompt"]
    run(program, "inspect", "--run", folder / "metric <b>&1", "--text", prompt, "--no-data", "--no-pictures", "--out",
        folder.parent / "inspection")
    return page


# Chooses a value of the control with this label in a section.
def choose(page, section, label, value):
    page.value(f"""(() => {{
        const all = [...document.querySelectorAll('#{section} [data-place]')];
        const e = all.find((one) => one.dataset.place === {json.dumps(label)});
        e.value = {json.dumps(value)};
        e.dispatchEvent(new Event(e.type === 'range' ? 'input' : 'change')); }})()""")


def check_smoothing(page):
    line = "document.querySelector('#curve-chart .curve').getAttribute('d')"
    raw = "document.querySelector('#curve-chart .raw').getAttribute('d')"
    before = page.value(line)
    equal(page.count("#curve-chart .raw"), 0, "pale lines without smoothing")
    choose(page, "curves", "smoothing", 0.9)
    equal(page.count("#curve-chart .raw"), page.count("#curve-chart .curve"), "pale lines behind smoothed ones")
    assert page.value(line) != before, "smoothing does not change the line"
    equal(page.value(raw), before, "the pale line")
    page.hover("#curve-chart", 0.6)
    assert "not smoothed" in page.value("document.getElementById('tooltip').textContent"), "the tooltip lacks the raw value"
    choose(page, "curves", "smoothing", 0)
    equal(page.value(line), before, "the line after smoothing was switched off")


def check_axes(page):
    title = "[...document.querySelectorAll('#curve-chart > text')].map((text) => text.textContent).join('|')"
    paths = set()
    for axis, words in [("step", "step"), ("time", "training time"), ("tokens", "tokens of"), ("operations", "operations of")]:
        choose(page, "curves", "by", axis)
        assert words in page.value(title), f"axis of {axis}: {page.value(title)}"
        equal(page.count("#curve-chart .curve"), 2, f"curves by {axis}")
        paths.add(page.value("document.querySelector('#curve-chart .curve').getAttribute('d')"))
    assert len(paths) > 1, "all axes have the same positions"
    choose(page, "curves", "by", "step")
    for series, unit in [("learning rate", "learning rate"), ("tokens per second", "tokens per second")]:
        choose(page, "curves", "show", series)
        equal(page.count("#curve-chart .curve"), 2, f"curves of {series}")
        assert unit in page.value(title), f"unit of {series}: {page.value(title)}"
    choose(page, "curves", "show", "validation loss")


def check_curves(page):
    def shown():
        return page.count("#curve-chart .curve"), page.count("#curve-chart .band")

    check_smoothing(page)
    check_axes(page)

    equal(shown(), (2, 1), "curves and bands: one of each group, a band where there are two seeds")
    page.hover("#curve-chart", 0.6)
    assert page.value("!document.getElementById('tooltip').hidden"), "no tooltip over the curves"
    assert re.search(r"step \d+", page.value("document.getElementById('tooltip').textContent")), "the tooltip names no step"
    equal(page.count("#tooltip tr"), 2, "rows of the tooltip")
    ticks = "[...document.querySelectorAll('#curve-chart .axis')].map((axis) => axis.textContent).join('|')"
    before = page.value(ticks)
    page.drag("#curve-chart", (0.4, 0.3), (0.6, 0.6))
    assert page.value(ticks) != before, "dragging does not zoom"
    page.click("#reset-zoom")
    equal(page.value(ticks), before, "axes after the zoom was reset")
    page.click("#curves .legend button")
    equal(shown(), (1, 0), "curves and bands after a group was hidden")
    page.click("#curves .legend button")
    choose(page, "curves", "as", "runs")
    equal(shown(), (3, 0), "curves of every run")
    choose(page, "curves", "as", "groups")
    choose(page, "curves", "show", "both")
    equal(shown(), (4, 2), "curves of training and validation")
    choose(page, "curves", "by", "time")
    assert "s" in page.value(ticks), "no seconds at the axis of time"
    page.value("document.getElementById('curve-chart').focus()")
    page.press("ArrowRight")
    assert page.value("document.querySelector('#curves .readout').textContent"), "arrow keys read no value"


def check_frontier(page, path):
    points = data_of(path)["comparison"]["frontier"]["points"]
    equal(len(points), 2, "points of the frontier: one of each group")
    equal(page.count("#comparison .frontier-point circle"), 2, "drawn points of the frontier")
    verdicts = page.value("[...document.querySelectorAll('#comparison table')].find((table) => "
                          "table.textContent.includes('parameters') && table.tHead.textContent.includes('frontier'))"
                          ".tBodies[0].textContent")
    assert all(point["verdict"] in verdicts for point in points), verdicts


# The value under the pointer must be that of `metaformer inspect`.
def check_attention(page, folder):
    attention = load_file(folder / "inspection" / "inspection.safetensors")["layer.1.attention"]
    count = attention.shape[1]
    panel = "#attention .head-panel:first-child "
    equal(page.count(panel + ".map .cell"), count * (count + 1) // 2, "cells that the causal mask leaves")
    equal(page.count(panel + ".heads button"), 4, "thumbnails of two layers with two heads")
    page.click(panel + '[data-place="1.1"]')
    equal(page.value(f"document.querySelector('{panel}[data-place=\"1.1\"]').getAttribute('aria-pressed')"), "true", "the chosen head")
    equal(page.value("document.activeElement.dataset.place"), "1.1", "the focus after a head was chosen")
    assert "layer 1, head 1" in page.value(f"document.querySelector('{panel}.map').getAttribute('aria-label')"), "the map's name"
    row, column = count - 1, 2
    page.hover(f"{panel}.cell:nth-child({row * (row + 1) // 2 + column + 1})")
    text = page.value("document.getElementById('tooltip').textContent")
    shown = float(re.search(r"attention ([\d.e−-]+)", text)[1].replace("−", "-"))
    assert abs(shown - attention[1, row, column]) < 1e-4, f"{text}: inspect says {attention[1, row, column]}"
    page.value(f"document.querySelector('{panel}.map').focus()")
    page.press("ArrowDown")
    assert "query" in page.value(f"document.querySelector('{panel}.readout').textContent"), "arrow keys choose no cell"
    page.hover(panel + ".query-area", 0.5, 0.5)
    visible = page.value(f"[...document.querySelectorAll('{panel}.link')].filter((e) => e.getAttribute('visibility') === 'visible').length")
    assert 0 < visible <= count, f"{visible} lines from one query"


def check_sections(page):
    for section in ("comparison", "curves", "texts", "attention", "forms", "distances", "norms", "blocks", "configs", "environment"):
        equal(page.count(f"section#{section}"), 1, f"sections {section}")
        equal(page.count(f"nav a[href='#{section}']"), 1, f"links to {section}")
    equal(page.count("#texts article"), 3, "texts")
    equal(page.count("#forms .head-panel"), 2, "panels of forms")
    assert page.count("#forms .bar") > 0, "no eigenvalues"
    equal(page.count("#blocks figure svg"), 4, "panels of the blocks in training")
    equal(page.count("#blocks .curve"), 3 + 2 + 2 + 3, "lines of two blocks, and of the embeddings where they have any")
    equal(page.count("#blocks .band"), 2 + 2, "bands over the heads")
    equal(page.count("b"), 0, "elements from markup in names")
    equal(page.value("document.querySelector('h1').textContent"), MARKUP, "title")
    assert "metric <b>&1" in page.value("document.getElementById('environment').textContent"), "the run's name as text"


def check_sorters(path, folder):
    with Page() as page:
        page.open(path)
        check_sections(page)
        check_frontier(page, path)
        check_curves(page)
        check_attention(page, folder)
        light = page.value("getComputedStyle(document.body).backgroundColor")
        page.pdf(folder / "page.pdf")
        assert (folder / "page.pdf").stat().st_size > 10_000, "the printed page is empty"
        page.set_view(1200, 900, dark=True)
        assert page.value("getComputedStyle(document.body).backgroundColor") != light, "dark colours are not used"
        check_widths(page, path)
        check_silence(page, path)
    figures = {file.name for file in (folder / "figures").iterdir()}
    assert {"curves_both.svg", "curves_both.pdf"} <= figures and any("attention" in name for name in figures), f"figures: {figures}"


# A phone's screen does not scroll sideways, and on paper nothing is cut or scrolls.
def check_widths(page, path):
    page.set_view(390, 800)
    page.open(path)
    assert page.value("document.documentElement.scrollWidth") <= 390, "a narrow page scrolls sideways"
    page.set_view(688, 970, paper=True)
    page.open(path)
    page.value("window.dispatchEvent(new Event('beforeprint'))")
    outside = page.value("""[...document.querySelectorAll('main *')].filter((e) => {
        const box = e.getBoundingClientRect(), {overflowX, overflowY} = getComputedStyle(e);
        const scrolls = e.clientHeight && [overflowX, overflowY].some((o) => o === 'auto' || o === 'scroll');
        return box.width && (box.right > 689 || scrolls);
    }).map((e) => e.tagName + ' ' + (e.closest('section') || {}).id).join()""")
    equal(outside, "", "elements that paper cuts")
    all_open = "[...document.querySelectorAll('#comparison details')].every((part) => part.open)"
    equal(page.value(all_open), True, "all tables on paper")
    page.value("window.dispatchEvent(new Event('afterprint'))")
    page.set_view(1200, 900)
    page.requests[:] = page.requests[:-2]


# Classifiers with and without a test split.
def check_classifiers(program, folder):
    words = {"good": ["great", "fine", "lovely"], "bad": ["dull", "awful", "poor"], "mixed": ["plain", "usual", "fair"]}
    names = list(words)  # of the words, two in seven are those of another label
    rows = [f"{names[i % 3]},the film {i} was {words[names[(i + (i % 7 < 2)) % 3]][i % 2]}" for i in range(300)]
    (folder / "train.csv").write_text("label,text\n" + "\n".join(rows[:240]) + "\n")
    (folder / "test.csv").write_text("label,text\n" + "\n".join(rows[240:]) + "\n")
    for name, more in [("tested", [f"data.test_path={folder / 'test.csv'}"]), ("untested", ["train.seed=2"])]:
        train(program, "text_classifier.yaml", folder / "classifiers" / name, f"data.path={folder / 'train.csv'}", *more)
    path = folder / "classifiers.html"
    run(program, "report", folder / "classifiers", "-o", path)
    found, untested = data_of(path)["classifiers"]
    equal((found["split"], untested["split"]), ("test", "validation"), "splits of the curves")
    with Page() as page:
        page.open(path)
        equal(page.count("#classes .map .cell"), 9, "cells of the confusion matrix")
        counts = page.value("[...document.querySelectorAll('#classes .cell-text')].map((text) => Number(text.textContent))")
        equal(counts, [count for row in found["confusion"]["test"] for count in row], "counts in the matrix")
        points = len(found["reliability"]) + len(untested["reliability"])
        equal(page.count("#classes .reliability .point"), points, "points of the reliability curves")
        equal(page.count("#classes .reliability .bar"), len(found["reliability"]), "bars with the numbers of texts")
        equal(page.count("#classes .roc .curve"), 2, "ROC curves")
        line = "document.querySelector('#classes .roc .curve').getAttribute('d')"
        before = page.value(line)
        choose(page, "classes", "ROC curve of", "2")
        assert page.value(line) != before, "another class, the same curve"
        equal(page.count("#classes .note li"), 0, "lines on missing results")
        assert "seed 2, validation split" in page.value("document.querySelector('#classes .legend').textContent"), "another split"
        check_silence(page, path)


def check_translator(program, folder):
    train(program, "seq2seq_copy.yaml", folder / "translator", "model.context=16", "train.batch_size=8")
    path = folder / "translator.html"
    run(program, "report", folder / "translator", "-o", path, "--prompt", "3 1 2")
    with Page() as page:
        page.open(path)
        equal(page.count("#translations article"), 6, "the prompt and five sources")
        equal(page.value("document.querySelector('#translations .prompt').textContent"), "3 1 2", "the first source")
        equal(page.count("#translations .reference"), 5, "references")
        check_silence(page, path)


# A page from a server gets new curves and keeps the choices, the zoom, opened parts and the place that the reader sees.
def check_watch(program, folder):
    metrics = folder / "sorters" / "sdp 1" / "metrics.jsonl"
    command = [program, "report", folder / "sorters", "--watch", "--every", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        url = server.stdout.readline().strip()
        with Page() as page:
            page.open_url(url)
            choose(page, "curves", "show", "train loss")
            page.click("#curves .legend button")
            page.drag("#curve-chart", (0.3, 0.2), (0.8, 0.8))
            page.value("document.querySelector('#configs details').open = true")
            ticks = "[...document.querySelectorAll('#curve-chart .axis')].map((axis) => axis.textContent).join('|')"
            line = "document.querySelector('#curve-chart .curve').getAttribute('d')"
            kept = page.value(ticks), page.count("#curve-chart .curve")
            drawn = page.value(line)
            page.value("document.getElementById('environment').scrollIntoView({behavior: 'instant'})")
            top = page.value("document.getElementById('environment').getBoundingClientRect().top")
            last = json.loads(metrics.read_text().splitlines()[-1])
            for i in (1, 2):
                more = {"step": last["step"] + i, "split": "train", "loss": 9.0, "seconds": 99 + i, "tokens": 99999 + i}
                metrics.write_text(metrics.read_text() + json.dumps(more) + "\n")
            end = time.monotonic() + 30
            while page.value(line) == drawn:
                assert time.monotonic() < end, "the page does not follow the run"
                time.sleep(0.1)
            equal((page.value(ticks), page.count("#curve-chart .curve")), kept, "zoom and hidden group")
            equal(page.value("document.querySelector('#curves select').value"), "train loss", "the chosen curve")
            equal(page.value("document.querySelector('#configs details').open"), True, "the opened part")
            moved = abs(page.value("document.getElementById('environment').getBoundingClientRect().top") - top)
            assert moved < 3, f"the page moved by {moved} pixels"
            equal(page.messages, [], "messages of the browser")
            equal({one for one in page.requests}, {url, url + "data"}, "requests")
        server.send_signal(signal.SIGINT)
        equal(server.wait(timeout=30), 130, "exit code after Ctrl-C")


# A language model whose prompt looks like the end of the page.
def check_language_model(program, folder):
    (folder / "text.txt").write_text((MARKUP + " some text to learn\n") * 400)
    train(program, "shakespeare_metric.yaml", folder / "language", f"data.path={folder / 'text.txt'}",
          "model.context=16")
    path = folder / "language.html"
    run(program, "report", folder / "language", "-o", path, "--prompt", MARKUP, "--tokens", "30")
    with Page() as page:
        page.open(path)
        equal(page.value("document.querySelector('.prompt').textContent"), MARKUP, "prompt")
        equal(page.count("#x"), 0, "elements from the prompt")
        equal(page.count("#attention .head-panel"), 1, "panels of one run")
        check_silence(page, path)


# 50 runs of 2,000 steps, each step logged, in ten groups: made from one run.
def check_many(program, folder):
    many = folder / "many"
    lines = [json.dumps({"step": step, "split": "train", "loss": 4 / (1 + step / 300) + step % 7 / 50, "gradient_norm": 1.0,
                         "learning_rate": 0.001, "seconds": step / 40}) for step in range(1, 2001)]
    for i in range(50):
        copy = many / f"run-{i}"
        shutil.copytree(folder / "language", copy, symlinks=True)
        config = (copy / "config.yaml").read_text()
        config = re.sub(r"(?m)^(  seed:) .*", rf"\1 {i % 5}", config)
        (copy / "config.yaml").write_text(re.sub(r"(?m)^(  learning_rate:) .*", rf"\1 0.001{i // 5}", config))
        (copy / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    path = folder / "many.html"
    start = time.monotonic()
    told = json.loads(run(program, "report", many, "-o", path, "--json"))
    seconds = time.monotonic() - start
    equal((told["runs"], told["groups"], told["problems"]), (50, 10, []), "runs, groups and problems")
    assert seconds <= 20, f"50 runs took {seconds:.1f} s"
    assert path.stat().st_size <= 10_000_000, f"the page of 50 runs has {path.stat().st_size} bytes"
    start = time.monotonic()
    with Page() as page:
        page.open(path)
        equal(page.count("#curve-chart .curve"), 10, "curves of ten groups")
        equal(page.count("#texts article"), 50, "texts")
        check_silence(page, path)
    print(f"50 runs: {seconds:.1f} s, {path.stat().st_size / 1e6:.2f} MB, opened in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        program, folder = sys.argv[1], Path(name)
        (folder / "sorters").mkdir()
        check_sorters(make_sorters(program, folder / "sorters"), folder)
        check_watch(program, folder)
        check_classifiers(program, folder)
        check_translator(program, folder)
        check_language_model(program, folder)
        check_many(program, folder)
