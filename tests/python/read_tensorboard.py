"""TensorBoard's own readers against metrics.jsonl and samples.jsonl: for a short training, for one that was killed and resumed
twice, and for one that diverged and rolled back. Every step must occur once.

usage: read_tensorboard.py METAFORMER
"""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.util.tensor_util import make_ndarray

from common import in_folder, run_cases, sets

CONFIG = """
data: {path: text.txt}
model: {layers: 1, heads: 2, width: 16, context: 16}
task: {kind: language_model, sample_interval: 20}
train: {steps: 40, batch_size: 2, eval_interval: 10, log_interval: 5}
"""
EVERYTHING = {"scalars": 0, "tensors": 0}  # no event is left out


def train(metaformer, folder, run, *options, **environment):
    (folder / "text.txt").write_text("".join(f"line {i} of a text\n" for i in range(200)))
    (folder / "small.yaml").write_text(CONFIG)
    command = [metaformer, "train", "--config", "small.yaml", "--out", run, "--quiet", *options]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, env={**os.environ, **environment})


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def scalars_of(lines):
    """{tag: [(step, value)]} of lines of metrics.jsonl, in the order of the steps."""
    scalars = {}
    left = [(line["split"], line["step"], {name: value for name, value in line.items() if name != "step"}) for line in lines]
    for tag, step, value in left:
        if isinstance(value, dict):
            left += [(f"{tag}/{name}", step, inner) for name, inner in value.items()]
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            scalars.setdefault(tag, []).append((step, value))
    return {tag: sorted(points) for tag, points in scalars.items()}


def agree(shown, logged):
    assert set(shown) == set(logged), set(shown) ^ set(logged)
    for tag, points in logged.items():
        assert [step for step, _ in shown[tag]] == [step for step, _ in points], (tag, shown[tag], points)
        for (step, here), (_, there) in zip(shown[tag], points):
            assert abs(here - there) <= 1e-6 * max(1, abs(there)), (tag, step, here, there)


def check_events(run):
    """Both of TensorBoard's readers must show the values of the run's files (the older one, which the page does not use, never
    forgets texts). Returns the number of values, and both readers."""
    logged = scalars_of(lines_of(run / "metrics.jsonl"))
    events = EventAccumulator(str(run), size_guidance=EVERYTHING)
    events.Reload()
    agree({tag: sorted((event.step, event.value) for event in events.Scalars(tag)) for tag in events.Tags()["scalars"]}, logged)
    page = plugin_event_accumulator.EventAccumulator(str(run), tensor_size_guidance={}, size_guidance=EVERYTHING)
    page.Reload()
    agree({tag: sorted((event.step, make_ndarray(event.tensor_proto).item()) for event in page.Tensors(tag)) for tag in logged},
          logged)
    samples = lines_of(run / "samples.jsonl")
    assert [(event.step, text_of(event)) for event in page.Tensors("sample")] == [
        (line["step"], "\n".join(line["text"].splitlines())) for line in samples]
    return sum(map(len, logged.values())), events, page


def check_whole(folder, metaformer):
    assert train(metaformer, folder, "run").wait() == 0
    count, events, _ = check_events(folder / "run")
    lines, samples = lines_of(folder / "run/metrics.jsonl"), lines_of(folder / "run/samples.jsonl")
    assert len(lines) == 8 + 4 and count == 8 * 13 + 4 * 6, (len(lines), count)
    assert "train/gradient_norm" in events.Tags()["scalars"]
    assert set(events.PluginTagToContent("text")) == {"config", "sample"}
    assert text_of(events.Tensors("config")[0]) == (folder / "run/config.yaml").read_text().rstrip("\n")
    assert [line["step"] for line in samples] == [20, 40]
    check_hyper_parameters(events)
    return f"{count} values agree"


def reached(run, step):
    file = run / "metrics.jsonl"
    return file.exists() and any(line["step"] >= step for line in lines_of(file))


def check_killed(folder, metaformer):
    """Kills a run twice after steps that no checkpoint has, and then extends it after an end with a whole evaluation."""
    options = sets("train.steps=100000", "train.checkpoint_interval=50", "train.evaluation=random")
    for attempt in range(2):
        process = train(metaformer, folder, "killed", *options, *(["--resume"] if attempt else []))
        deadline = time.monotonic() + 120
        while not reached(folder / "killed", 130 * (attempt + 1)):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    done = lines_of(folder / "killed/metrics.jsonl")[-1]["step"]
    for more in (60, 120):
        assert train(metaformer, folder, "killed", *options, *sets(f"train.steps={done + more}"), "--resume").wait() == 0
        count, _, page = check_events(folder / "killed")
    lines = lines_of(folder / "killed/metrics.jsonl")
    assert sum(line["split"] == "validation" for line in lines) == 1 and lines[-1]["step"] == done + 120
    configs = [event.step for event in page.Tensors("config")]
    assert len(configs) == len(set(configs)) and configs[0] == 0, configs
    return f"{count} values agree"


def check_rolled_back(folder, metaformer):
    options = sets("train.steps=100", "train.checkpoint_interval=20", "train.divergence.action=rollback")
    assert train(metaformer, folder, "back", *options, METAFORMER_FAULT="nan:57").wait() == 0
    count, events, _ = check_events(folder / "back")
    [line] = (line for line in lines_of(folder / "back/metrics.jsonl") if line["split"] == "rollback")
    assert events.Scalars("rollback/failed_step")[0].step == line["step"] < line["failed_step"] == 57
    return f"{count} values agree"


def text_of(event):
    """The text of an event without the indentation that protects it from Markdown."""
    lines = event.tensor_proto.string_val[0].decode().splitlines()
    assert all(line.startswith("    ") for line in lines)
    return "\n".join(line[4:] for line in lines)


def check_hyper_parameters(events):
    data = HParamsPluginData.FromString(events.PluginTagToContent("hparams")["_hparams_/session_start_info"])
    values = data.session_start_info.hparams
    assert values["train.steps"].number_value == 40 and values["model.width"].number_value == 16
    assert values["model.mixer.kind"].string_value == "scaled_dot_product"
    assert values["train.overfit_batch"].HasField("bool_value") and not values["train.overfit_batch"].bool_value
    assert data.session_start_info.start_time_secs > 1e9


if __name__ == "__main__":
    run_cases({check.__name__: in_folder(check, Path(sys.argv[1]).resolve())
               for check in (check_whole, check_killed, check_rolled_back)})
