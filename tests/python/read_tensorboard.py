"""TensorBoard's own reader against metrics.jsonl of a short training.

usage: read_tensorboard.py METAFORMER
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

CONFIG = """
data: {path: text.txt}
model: {layers: 1, heads: 2, width: 16, context: 16}
task: {kind: language_model, sample_interval: 20}
train: {steps: 40, batch_size: 2, eval_interval: 10, log_interval: 5}
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "text.txt").write_text("".join(f"line {i} of a text\n" for i in range(200)))
        (folder / "small.yaml").write_text(CONFIG)
        subprocess.run([sys.argv[1], "train", "--config", "small.yaml", "--out", "run", "--quiet"], check=True, cwd=folder)
        lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
        samples = [json.loads(line) for line in (folder / "run/samples.jsonl").read_text().splitlines()]
        config = (folder / "run/config.yaml").read_text()
        events = EventAccumulator(str(folder / "run"))
        events.Reload()
    compared = 0
    for line in lines:
        for name, value in line.items():
            if name in ("step", "split"):
                continue
            scalars = {event.step: event.value for event in events.Scalars(f"{line['split']}/{name}")}
            assert abs(scalars[line["step"]] - value) <= 1e-6 * max(1, abs(value)), (line, name)
            compared += 1
    assert len(lines) == 8 + 4 and compared == 8 * 13 + 4 * 5, (len(lines), compared)
    assert "train/gradient_norm" in events.Tags()["scalars"]
    check_texts(events, config, samples)
    check_hyper_parameters(events)
    print(f"{compared} values agree")


def text_of(event):
    """Without the indentation that keeps Markdown from changing it."""
    lines = event.tensor_proto.string_val[0].decode().splitlines()
    assert all(line.startswith("    ") for line in lines)
    return "\n".join(line[4:] for line in lines)


def check_texts(events, config, samples):
    assert set(events.PluginTagToContent("text")) == {"config", "sample"}
    assert text_of(events.Tensors("config")[0]) == config.rstrip("\n")
    shown = {event.step: text_of(event) for event in events.Tensors("sample")}
    assert shown == {line["step"]: "\n".join(line["text"].splitlines()) for line in samples} and list(shown) == [20, 40]


def check_hyper_parameters(events):
    data = HParamsPluginData.FromString(events.PluginTagToContent("hparams")["_hparams_/session_start_info"])
    values = data.session_start_info.hparams
    assert values["train.steps"].number_value == 40 and values["model.width"].number_value == 16
    assert values["model.mixer.kind"].string_value == "metric"
    assert values["train.overfit_batch"].HasField("bool_value") and not values["train.overfit_batch"].bool_value
    assert data.session_start_info.start_time_secs > 1e9


if __name__ == "__main__":
    main()
