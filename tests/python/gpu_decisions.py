#!/usr/bin/env python3
"""Tests scripts/gpu_results.py: the values that it reads from the programs' output, and the decision of each rule.

  gpu_decisions.py ROOT
"""
import importlib.util
import json
import sys
from pathlib import Path

from common import in_folder, run, run_cases

SCRIPT = Path(sys.argv[1]).resolve() / "scripts/gpu_results.py"
specification = importlib.util.spec_from_file_location("gpu_results", SCRIPT)
results = importlib.util.module_from_spec(specification)
specification.loader.exec_module(results)


def decisions(*notes):
    """{name: decision} for pairs (label, result)."""
    report = results.report([{"label": label, "result": result} for label, result in notes])
    return {each["name"]: each["decision"] for each in report["measurements"]}


def attention(direction, precision, context, width, **backends):
    rows = [{"mixer": "metric", "backend": backend, "ms": ms, "batch": 4, "heads": 8, "context": context, "head_width": width}
            for backend, ms in backends.items()]
    return {"direction": direction, "precision": precision, "results": rows}


def core(fused, composed):
    """Decisions on the fused kernels by direction, from times by direction."""
    notes = [("core", attention(one, "bf16", 256, 64, fused=fused[one], composed=composed[one])) for one in fused]
    return {name.split("/")[1]: text for name, text in decisions(*notes).items() if name.endswith("metric fused")}


def step(mixer, dropout, graph, ms, precision="bf16"):
    return f"step/{mixer}/{precision}/dropout {dropout}/{graph}", {"ms_per_step": ms}


def peer(ms, compiled=True, graph=True, dropout=0.0, precision="bf16", batches="device"):
    return "peer", {"peer": "pytorch", "precision": precision, "compiled": compiled, "graph": graph, "dropout": dropout,
                    "batches": batches, "ms_per_step": ms, "peak_memory_bytes": 2**20}


def check_core():
    found = core({"forward": 1.02, "both": 3.0, "backward": 1.98}, {"forward": 1.0, "both": 2.0, "backward": 1.0})
    assert found["forward"].startswith("level"), found
    assert found["both"] == "composed is faster: 1.50 of composed", found
    assert found["backward"].endswith("work on this pass first, it loses 0.9800 ms"), found
    found = core({"forward": 0.5, "both": 1.0, "backward": 0.5}, {"forward": 1.0, "both": 2.0, "backward": 1.0})
    assert all(text == "fused is faster: 0.50 of composed" for text in found.values()), found
    around = decisions(("core", attention("both", "bf16", 256, 64, fused=1.0, composed=1.0, library=0.9)))
    assert around["core/both/bf16/b4 n8 c256 k64/metric library"].endswith("is faster: 0.90 of composed"), around
    alone = decisions(("core", attention("both", "bf16", 256, 64, fused=1.0)))
    assert alone == {"core/both/bf16/b4 n8 c256 k64/metric fused": "open: composed was not measured"}, alone
    return "by pass"


def check_choices():
    """The present rule of backend auto is kept if it is right within 3%."""
    cases = [("bf16", 64, 1.0, 1.02, "keep"), ("bf16", 256, 1.0, 0.9, "change to fused"), ("bf16", 256, 1.0, 1.2, "keep"),
             ("tf32", 4096, 1.0, 1.1, "change to composed"), ("bf16", 64, 1.0, 1.1, "change to composed"),
             ("fp32", 256, 1.0, 0.8, "keep")]
    for precision, context, composed, fused, expected in cases:
        found = decisions(("choice", attention("both", precision, context, 32, fused=fused, composed=composed)))
        assert expected in found[f"choice/both/{precision}/b4 n8 c{context} k32/metric fused"], (precision, context, found)
    found = decisions(("choice", attention("both", "bf16", 256, 32, fused=0.9, composed=1.0, library=0.8)))
    assert found["choice/both/bf16/b4 n8 c256 k32/metric fused"] == "auto takes library; keep, 1.12 of library", found
    return f"{len(cases) + 1} cells"


def check_short_backward():
    """It is taken where it is faster than every other backend."""
    name, usual = "both/bf16/b4 n8 c256 k64/metric fused_short", {"fused": 1.2, "composed": 1.0, "library": 0.9}
    cases = [(0.8, usual, "0.89 of the fastest other: auto takes it in this context"),
             (0.89, usual, "0.99 of the fastest other: auto leaves it off"),
             (0.95, {"fused": 1.0}, "0.95 of the fastest other: auto takes it in this context"),
             (1.0, {}, "open: no other backend was measured")]
    for label in ("core", "choice"):
        for ms, others, expected in cases:
            found = decisions((label, attention("both", "bf16", 256, 64, fused_short=ms, **others)))
            assert found[f"{label}/{name}"] == expected, found
    kernel = "metric attention with the short backward pass"
    for share, expected in ((0.9, "0.90 of the usual backward pass: fused takes it in this context"),
                            (0.98, "0.98 of the usual backward pass: fused leaves it off")):
        rows = [{"kernel": kernel, "ms": share, "library_ms": 1, "share_of_library_time": share}]
        found = decisions(("kernel", {"precision": "bf16", "rounds": 15, "results": rows}))
        assert found[f"kernel/bf16/{kernel}"] == expected, found
    return "by shape and pass"


def check_kernels():
    measured = lambda share: decisions(("kernel", {"precision": "bf16", "rounds": 15, "results": [
        {"kernel": "residual sum and norm", "ms": 1, "library_ms": 1, "share_of_library_time": share},
        {"kernel": "gelu", "ms": 1, "library_ms": 1, "share_of_library_time": 0.5}]}))
    for share, expected in ((0.4, "0.40 of the operators: keep the kernel"), (1.1, "1.10 of the operators: take the operators")):
        found = measured(share)
        assert found["kernel/bf16/residual sum and norm"] == expected, found
    assert found["kernel/bf16/gelu"] == "", found
    return "residual sum and norm"


def check_steps():
    found = decisions(step("metric", 0, "graph", 6.0), step("metric", 0, "eager", 9.0), step("metric", 0.2, "graph", 8.0),
                      step("scaled_dot_product", 0, "graph", 6.5), step("scaled_dot_product", 0, "eager", 6.6),
                      step("scaled_dot_product", 0.2, "graph", 7.0))
    assert "the graph stays on" in found["step/metric/bf16/dropout 0/graph"], found
    assert "may be left off" in found["step/scaled_dot_product/bf16/dropout 0/graph"], found
    assert found["step/metric/bf16/dropout 0.2/graph"].startswith("open"), found
    assert found["mixer/metric/bf16/dropout 0/graph"].startswith("metric is faster: 0.92"), found
    assert found["mixer/metric/bf16/dropout 0.2/graph"].startswith("scaled_dot_product is faster: 1.14"), found
    assert found["dropout/metric/bf16"] == "0.25 of the step: work on dropout next", found
    assert found["dropout/scaled_dot_product/bf16"] == "0.07 of the step: leave dropout as it is", found
    return "graphs, mixers, dropout"


def check_speed():
    """No speed is claimed against a peer that is not the strongest, or that has another dropout or precision."""
    ours = step("metric", 0, "graph", 4.0)
    name = "speed/metric/bf16/dropout 0"
    assert decisions(ours, peer(9, graph=False))[name].startswith("claim nothing")
    assert decisions(ours, peer(5), peer(9, graph=False))[name] == "may be claimed: 0.80 of PyTorch's fastest step"
    assert decisions(ours, peer(4.1))[name].startswith("no speed is claimed: 0.98")
    assert decisions(ours, peer(5), peer(3.5, compiled=False, graph=False, batches="pinned"))[name].startswith("no speed")
    for other in (peer(9, dropout=0.2), peer(9, precision="tf32")):
        assert name not in decisions(ours, other)
    failed = ("peer", {**peer(0)[1], "failed": "an error"})
    found = decisions(ours, failed, peer(9, graph=False))
    assert found[name].startswith("claim nothing") and "peer/bf16/dropout 0/compiled graph device/failed" in found, found
    return "claimed only beside the strongest"


def check_update_kernels():
    """A kernel of a layer, of the loss or of the update stays where it costs at most 3% more than the operators."""
    for share, expected in ((0.4, "0.40 of the operators: keep the kernel"), (1.1, "1.10 of the operators: take the operators")):
        ours = ("bias and gelu", "rotary positions", "embedding of 65 tokens", "cross-entropy of 65 tokens",
                "norm, clipping and AdamW", "linear layer of a copied weight")
        rows = [{"kernel": name, "ms": share, "library_ms": 1, "share_of_library_time": share} for name in (*ours, "gelu")]
        found = decisions(("kernel", {"precision": "bf16", "rounds": 15, "results": rows}))
        for name in ours:
            assert found[f"kernel/bf16/{name}"] == expected, found
        assert found["kernel/bf16/gelu"] == "", found
    return "layers, loss and update"


def check_others():
    rate = lambda value, device: decisions(("probe", {"probe": "product_bf16", "value": value, "unit": "TFLOP/s",
                                                      "device": device}))["probe/product_bf16"]
    assert "times count" in rate(788, "NVIDIA H200") and "throttled" in rate(400, "NVIDIA H100 80GB HBM3")
    assert "not known" in rate(400, "NVIDIA made-up")
    validation = [("time_to_loss/metric", {"split": "validation", "step": at, "loss": loss})
                  for at, loss in ((250, 2.0), (500, 1.5), (750, 1.6))]
    found = decisions(*validation)
    assert found["time_to_loss/metric/step 500"].endswith("trains as it should"), found
    assert all("another step" in found[f"time_to_loss/metric/step {at}"] for at in (250, 750)), found
    for outcome, expected in (("passed", "go on"), ("FAILED (exit code 1)", "stop"), ("NOT RUN (no time left)", "repeat")):
        assert decisions(("check", {"check": "suite", "outcome": outcome}))["check/suite"].startswith(expected)
    return "probes, losses, checks"


def check_profile():
    """Kernels by kind and the gaps are read, but not the longest kernels; on a CPU the operators of the host."""
    host = "time by operator on the host over 2 steps, 1.00 ms a step while recording\n" \
           "  operator     calls/step    ms/step   share\n  aten::mm        12.0      0.400   40.0%\n"
    (of_host,) = results.read_results("step 1: validation loss 2.1\n" + host + "trace for chrome://tracing: a 5 2 3%\n")
    assert of_host == {"kernels": {"host: aten::mm": 0.4}}, of_host
    (of_device,) = results.read_results(host + results.CANNED_PROFILE + "\n" + host)
    assert of_device == {"kernels": {"matrix products": 3.0, "attention": 1.5, "gaps, in which no kernel runs": 0.5}}
    found = decisions(("profile/metric/0.2", of_device), ("profile/metric/0", {"kernels": {"attention": 2.0}}))
    assert found["profile/metric/0.2/attention"] == "0.30 of the step, place 2", found
    assert found["profile/metric/0/attention"] == "1.00 of the step, place 1: first to be worked on", found
    return "by kind"


def check_files(folder):
    notes, file = folder / "notes", folder / "out.json"
    program = lambda *arguments, **more: run(sys.executable, SCRIPT, *arguments, **more)
    program("write", notes, file)
    assert json.loads(file.read_text())["measurements"] == []
    assert "nothing was measured: no JSON" in program("note", notes, "step/metric", text="no JSON here", code=1)
    for ms in (3, 4):  # the last of two measurements counts
        program("note", notes, "step/a/bf16/dropout 0/graph", text=f'a message\n{{"ms_per_step": {ms}}}\n')
    program("check", notes, "suite", "passed", 3)
    program("write", notes, file)
    first, second = json.loads(file.read_text())["measurements"]
    assert set(first) == {"name", "value", "unit", "rule", "decision"} and first["value"] == 4, first
    assert (second["name"], second["value"], second["decision"]) == ("check/suite", "passed", "go on"), second
    assert "rules without a measurement" in program("every-rule", file, code=1)
    return "2 measurements"


if __name__ == "__main__":
    checks = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}
    run_cases({name: in_folder(check) if name == "files" else check for name, check in checks.items()})
