"""The report page in a browser that can reach no network: nothing is requested, no error is logged, charts have as many elements as
their data, and hover, zoom, keyboard and the choice of heads work; also on a dark and on a narrow screen, on paper, and with 50 runs.

usage: report_page.py METAFORMER
"""
import json
import re
import shutil
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


def check_curves(page):
    def shown():
        return page.count("#curve-chart .curve"), page.count("#curve-chart .band")

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
    choose = "(value, i) => { const e = document.querySelectorAll('#curves select')[i]; e.value = value; e.dispatchEvent(new Event('change')); }"
    page.value(f"({choose})('runs', 3)")
    equal(shown(), (3, 0), "curves of every run")
    page.value(f"({choose})('groups', 3)")
    page.value(f"({choose})('both', 0)")
    equal(shown(), (4, 2), "curves of training and validation")
    page.value(f"({choose})('time', 1)")
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
        page.set_view(390, 800)
        page.open(path)
        assert page.value("document.documentElement.scrollWidth") <= 390, "a narrow page scrolls sideways"
        page.requests.pop()
        check_silence(page, path)
    figures = {file.name for file in (folder / "figures").iterdir()}
    assert {"curves_both.svg", "curves_both.pdf"} <= figures and any("attention" in name for name in figures), f"figures: {figures}"


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
        check_language_model(program, folder)
        check_many(program, folder)
