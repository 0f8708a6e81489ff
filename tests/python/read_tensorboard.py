"""TensorBoard's own reader against metrics.jsonl of a short training.

usage: read_tensorboard.py METAFORMER
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

CONFIG = """
data: {path: text.txt}
model: {layers: 1, heads: 2, width: 16, context: 16}
train: {steps: 40, batch_size: 2, eval_interval: 10, log_interval: 5}
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "text.txt").write_text("".join(f"line {i} of a text\n" for i in range(200)))
        (folder / "small.yaml").write_text(CONFIG)
        subprocess.run([sys.argv[1], "train", "--config", "small.yaml", "--out", "run", "--quiet"], check=True, cwd=folder)
        lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
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
    assert len(lines) == 8 + 4 and compared == 8 * 6 + 4 * 5, (len(lines), compared)
    assert "train/gradient_norm" in events.Tags()["scalars"]
    print(f"{compared} values agree")


if __name__ == "__main__":
    main()
