#!/usr/bin/env python3
"""Collects the measurements of scripts/gpu_check.sh from the output of programs, and makes a decision for each by a rule.

  COMMAND | gpu_results.py note NOTES LABEL     notes the lines of JSON among the output of a command, or the table of
                                                `train --profile`, and prints each measurement
  gpu_results.py check NOTES NAME OUTCOME SECONDS
  gpu_results.py write NOTES FILE               writes a list of {name, value, unit, rule, decision}
  gpu_results.py canned NOTES                   notes made-up values of measurements that need a GPU, for a dry run
  gpu_results.py every-rule FILE                fails if a rule was not applied to any measurement of the file

A label adds information that a command's JSON lacks: "step/metric/bf16/dropout 0/graph", "profile/metric/0.2", "core". The
rule is a text; the decision is computed from the value and from the other measurements of the file.
"""
import argparse
import json
import re
import sys

TOLERANCE = 0.03  # times closer than this are level
PEAK_BF16 = {"H100": 989, "H200": 989, "A100": 312}  # dense TFLOP/s, published
PROFILE_LINE = re.compile(r"^\s+(\S.*?)\s{2,}(?:[\d.]+\s+)?([\d.]+)\s+[\d.]+%")  # name, calls, ms a step, share


def peer_name(result):
    kind = ("compiled" if result["compiled"] else "eager") + (" graph" if result["graph"] else "")
    return f"peer/{result['precision']}/dropout {result['dropout']:g}/{kind} {result['batches']}"


def of_attention(label, result):
    for row in result["results"]:
        if "ms" in row:
            shape = f"b{row['batch']} n{row['heads']} c{row['context']} k{row['head_width']}"
            place = f"{label}/{result['direction']}/{result['precision']}/{shape}"
            yield f"{place}/{row['mixer']} {row['backend']}", row["ms"], "ms"


def measurements(label, result):
    """(name, value, unit) of every measurement in one line of JSON."""
    if "failed" in result:
        yield f"{peer_name(result)}/failed", result["failed"], "error"
    elif result.get("peer"):
        yield peer_name(result), result["ms_per_step"], "ms"
        yield f"{peer_name(result)}/memory", result["peak_memory_bytes"] / 2**20, "MiB"
    elif "probe" in result:
        yield f"probe/{result['probe']}", result["value"], result["unit"]
    elif "results" in result and "rounds" in result and all("kernel" in row for row in result["results"]):
        for row in result["results"]:
            yield f"{label}/{result['precision']}/{row['kernel']}", row["share_of_library_time"], "of the operators"
    elif "results" in result:
        yield from of_attention(label, result)
    elif "ms_per_step" in result:
        yield label, result["ms_per_step"], "ms"
    elif "kernels" in result:
        for kind, ms in result["kernels"].items():
            yield f"{label}/{kind}", ms, "ms"
    elif result.get("split") == "validation":
        yield f"{label}/step {result['step']}", result["loss"], "loss"
    elif "check" in result:
        yield f"check/{result['check']}", result["outcome"], "outcome"


def read_profile(lines):
    """Milliseconds a step by kind of work on the device, or by operator of the host if nothing ran on a device."""
    tables, current = {"device": {}, "host": {}}, None
    for line in lines:
        heading = re.match(r"time by \w+ on the (device|host) over", line)
        match = PROFILE_LINE.match(line)
        if heading:
            current = heading[1]
        elif line.startswith("  longest kernels"):
            current = None
        elif match and current:
            tables[current][match[1]] = float(match[2])
    return tables["device"] or {f"host: {name}": ms for name, ms in tables["host"].items()}


def read_results(text):
    lines = text.splitlines()
    results = [json.loads(line) for line in lines if line.startswith("{")]
    profile = read_profile(lines)
    return results + ([{"kernels": profile}] if profile else [])


# Rules: a pattern of names, words, and a function that gives the decision from the match, the value, and all values by name.


def ratio_to(value, other):
    return None if not isinstance(other, (int, float)) or other == 0 else value / other


def faster_of(ratio, ours, theirs):
    if ratio is None:
        return f"open: {theirs} was not measured"
    if abs(ratio - 1) <= TOLERANCE:
        return f"level: {ratio:.2f} of {theirs}"
    return f"{ours if ratio < 1 else theirs} is faster: {ratio:.2f} of {theirs}"


def decide_check(match, value, values):
    return "go on" if value == "passed" else "stop: correct this before any time is used" if "FAILED" in value else "repeat"


def decide_probe(match, value, values):
    peaks = [peak for card, peak in PEAK_BF16.items() if card in values["device"]]
    if not peaks:
        return f"the peak of {values['device']} is not known here"
    share = value / peaks[0]
    return f"{share:.2f} of the published peak: " + ("times count" if share >= 0.6 else "repeat all times, the card is throttled")


def decide_core(match, value, values):
    composed = values.get(f"{match[1]}/metric composed")
    decision = faster_of(ratio_to(value, composed), "fused", "composed")
    direction, rest = match[2], match[1].split("/", 2)[2]
    losses = {}
    for one in ("forward", "backward"):
        pair = [values.get(f"core/{one}/{rest}/metric {backend}") for backend in ("fused", "composed")]
        if None not in pair:
            losses[one] = pair[0] - pair[1]
    if len(losses) == 2 and max(losses.values()) > 0:
        worse = max(losses, key=losses.get)
        if worse == direction:
            decision += f"; work on this pass first, it loses {losses[worse]:.4f} ms"
    return decision


def decide_library(match, value, values):
    ratio = ratio_to(value, values.get(f"{match[1]}/metric composed"))
    return faster_of(ratio, "the library's attention with kernels around it", "composed")


def decide_choice(match, value, values):
    precision, context, width = match[2], int(match[3]), match[4]
    # In 16 bits auto takes the library's attention in place of composed products.
    other = "library" if f"{match[1]}/metric library" in values else "composed"
    ratio = ratio_to(value, values.get(f"{match[1]}/metric {other}"))
    if ratio is None:
        return "open: composed was not measured"
    taken = "fused" if precision in ("tf32", "fp32") or context <= 64 else other
    cost = ratio if taken == "fused" else 1 / ratio
    faster = "fused" if ratio < 1 else other
    return f"auto takes {taken}; " + (f"keep, {ratio:.2f} of {other}" if cost <= 1 + TOLERANCE else
                                      f"change to {faster} at width {width} and context {context}, {cost:.2f} of its time")


def decide_short_backward(match, value, values):
    others = [values[name] for name in (f"{match[1]}/metric {backend}" for backend in ("fused", "library", "composed")) if name in values]
    ratio = ratio_to(value, min(others)) if others else None
    if ratio is None:
        return "open: no other backend was measured"
    return f"{ratio:.2f} of the fastest other: " + ("auto takes it in this context" if ratio < 1 - TOLERANCE else "auto leaves it off")


def decide_short_kernel(match, value, values):
    return f"{value:.2f} of the usual backward pass: " + ("fused takes it in this context" if value < 1 - TOLERANCE
                                                          else "fused leaves it off")


def decide_kernel(match, value, values):
    return f"{value:.2f} of the operators: " + ("keep the kernel" if value <= 1 + TOLERANCE else "take the operators")


def decide_graph(match, value, values):
    ratio = ratio_to(value, values.get(f"{match[1]}/eager"))
    if ratio is None:
        return "open: the eager step was not measured"
    return f"{ratio:.2f} of the eager step: " + ("the graph stays on" if ratio < 1 - TOLERANCE else "the graph may be left off")


def decide_mixer(match, value, values):
    other = values.get(f"step/scaled_dot_product/{match[2]}")
    return faster_of(ratio_to(value, other), match[1], "scaled_dot_product")


def decide_dropout(match, value, values):
    share = ratio_to(value, values.get(f"step/{match[1]}/{match[2]}/dropout 0.2/graph"))
    if share is None:
        return "open"
    return f"{share:.2f} of the step: " + ("work on dropout next" if share > 0.1 else "leave dropout as it is")


def decide_speed(match, value, values):
    strongest = f"peer/{match[2]}/{match[3]}/compiled graph device"
    if strongest not in values:
        return "claim nothing: PyTorch's strongest step was not measured"
    if value < 1 - TOLERANCE:
        return f"may be claimed: {value:.2f} of PyTorch's fastest step"
    return f"no speed is claimed: {value:.2f} of PyTorch's fastest step"


def decide_profile(match, value, values):
    kinds = {name: ms for name, ms in values.items() if name.startswith(match[1] + "/")}
    total = sum(kinds.values())
    place = sorted(kinds.values(), reverse=True).index(value) + 1
    return f"{value / total:.2f} of the step, place {place}" + (": first to be worked on" if place == 1 else "")


def decide_loss(match, value, values):
    steps = {name: loss for name, loss in values.items() if re.match(re.escape(match[1]) + r"/step \d+$", name)}
    if value > min(steps.values()):
        return "a lower loss was reached at another step"
    return f"lowest of {len(steps)} evaluations: " + ("trains as it should" if value < 1.6 else "too high or stopped too early")


NUMBER = r"[\d.]+"
RULES = [
    (r"check/.*", "a check that fails stops the use of all times", decide_check),
    (r"probe/product_bf16", "below 0.6 of the card's published peak the card is throttled, and times are repeated", decide_probe),
    (r"(core/(forward|backward|both)/\w+/[^/]*)/metric fused",
     "fused loses where it takes over 1.03 of composed; the pass with the larger loss is worked on first", decide_core),
    (r"(core/(?:forward|backward|both)/\w+/[^/]*)/metric library",
     "backend auto keeps the library's attention with kernels around it where it takes at most 1.03 of composed", decide_library),
    (r"(choice/both/(\w+)/b\d+ n\d+ c(\d+) k(\d+))/metric fused",
     "backend auto takes the faster one; its rule changes where it costs over 1.03 of the other's time", decide_choice),
    (r"((?:core|choice)/both/\w+/[^/]*)/metric fused_short",
     "backend auto takes the short backward pass in a context (attention/kernel_choice.cpp) where it takes below 0.97 of the fastest "
     "other backend", decide_short_backward),
    (r"kernel/\w+/metric attention with the short backward pass",
     "fused takes the short backward pass in a context (attention/kernel_choice.cpp) where both passes take below 0.97 of those with "
     "the usual one", decide_short_kernel),
    (r"kernel/\w+/(residual sum|bias and|rotary positions|embedding of|cross-entropy|norm, clipping|linear layer).*",
     "the layers between matrix products, the loss, norm, clipping and update, and copies of the weights stay where these take at "
     "most 1.03 of the operators", decide_kernel),
    (r"(step/\w+/\w+/dropout " + NUMBER + ")/graph", "the graph stays on where it saves at least 3% of a step", decide_graph),
    (r"mixer/(\w+)/(.*)", "a mixer's step is called cheaper below 0.97 of scaled dot product's", None),
    (r"dropout/(\w+)/(\w+)", "dropout that costs over a tenth of a step is worked on next", decide_dropout),
    (r"speed/(\w+)/(\w+)/(dropout " + NUMBER + ")",
     "a speed beside PyTorch is claimed only below 0.97 of its fastest step, if that compiled in a graph was measured",
     decide_speed),
    (r"(profile/\w+/" + NUMBER + ")/.*", "the kind of work with the largest share of a step comes first", decide_profile),
    (r"(time_to_loss/\w+)/step \d+", "a mixer trains as it should if its lowest loss is below 1.6", decide_loss)]
BASELINE = "none; other measurements are compared with this one"


def derived(values):
    """Ratios and differences of measurements."""
    found = {}
    for name, value in values.items():
        step = re.fullmatch(rf"step/(\w+)/(\w+)/(dropout ({NUMBER}))/(graph|eager)", name)
        if not step:
            continue
        mixer, precision, dropout, number, graph = step.groups()
        same = f"{precision}/{dropout}/{graph}"
        if mixer != "scaled_dot_product":
            ratio = ratio_to(value, values.get(f"step/scaled_dot_product/{same}"))
            if ratio is not None:
                found[f"mixer/{mixer}/{same}"] = (ratio, "of scaled_dot_product")
        without = values.get(f"step/{mixer}/{precision}/dropout 0/graph")
        if graph == "graph" and number != "0" and without is not None:
            found[f"dropout/{mixer}/{precision}"] = (value - without, "ms")
        peers = [ms for peer, ms in values.items() if re.fullmatch(rf"peer/{precision}/{dropout}/[^/]*", peer)]
        if graph == "graph" and peers:
            found[f"speed/{mixer}/{precision}/{dropout}"] = (value / min(peers), "of PyTorch's fastest step")
    return found


def decided(name, value, unit, values):
    for pattern, rule, decide in RULES:
        match = re.fullmatch(pattern, name)
        if match and decide is None:
            decision = faster_of(value, match[1], "scaled_dot_product")
        elif match:
            decision = decide(match, value, values)
        if match:
            return {"name": name, "value": value, "unit": unit, "rule": rule, "decision": decision}
    return {"name": name, "value": value, "unit": unit, "rule": BASELINE, "decision": ""}


def read_notes(path):
    try:
        return [json.loads(line) for line in open(path)]
    except FileNotFoundError:
        return []


def report(notes):
    """All measurements with their decisions; if a name was measured twice, only the last."""
    found, device = {}, "an unknown device"
    for note in notes:
        device = note["result"].get("device", device)
        for name, value, unit in measurements(note["label"], note["result"]):
            found[name] = (value, unit)
    values = {name: value for name, (value, _) in found.items()}
    found.update(derived(values))
    values = {name: value for name, (value, _) in found.items()}
    values["device"] = device
    return {"device": device, "measurements": [decided(name, value, unit, values) for name, (value, unit) in found.items()]}


# Measurements that a dry run cannot make on a CPU, in the form in which programs print them on a GPU.
CANNED_PROFILE = """time by kernel on the device over 20 steps, 5.000 ms a step from its first kernel to its last, on 1 stream
  kind                                                         calls/step   ms/step   share  GFLOP/step   MB/step
  matrix products                                                   150.0     3.000   60.0%     1040.00    100.00
  attention                                                          12.0     1.500   30.0%
  gaps, in which no kernel runs                                               0.500   10.0%
  longest kernels                                              calls/step   ms/step   share  GFLOP/step   MB/step
  gemm                                                               20.0     1.000   20.0%"""


def canned():
    peer = {"peer": "pytorch", "precision": "bf16", "peak_memory_bytes": 2**30, "graph": True, "compiled": True,
            "batches": "device", "device": "NVIDIA H100, canned"}
    times = {"forward": (0.27, 0.25, 0.24, 0.26), "both": (1.7, 0.8, 0.7, 0.6), "backward": (1.43, 0.55, 0.46, 0.34)}
    for direction, of_backends in times.items():
        rows = [{"mixer": "metric", "backend": backend, "ms": ms, "batch": 4, "heads": 8, "context": 4096, "head_width": 64}
                for backend, ms in zip(("fused", "composed", "library", "fused_short"), of_backends)]
        yield "core", {"direction": direction, "precision": "bf16", "results": rows}
        if direction == "both":
            yield "choice", {"direction": direction, "precision": "bf16", "results": rows}
    yield "kernel", {"precision": "bf16", "rounds": 15,
                     "results": [{"kernel": "residual sum and norm", "share_of_library_time": 0.5},
                                 {"kernel": "metric attention with the short backward pass", "share_of_library_time": 0.7},
                                 {"kernel": "cross-entropy of 65 tokens", "share_of_library_time": 0.5}]}
    for dropout, ms in ((0, 5.0), (0.2, 6.0)):
        yield "peer", {**peer, "dropout": dropout, "ms_per_step": ms}
    yield "peer", {**peer, "dropout": 0.5, "failed": "an error"}
    for result in read_results(CANNED_PROFILE):
        yield "profile/canned/0.2", result


def every_rule(path):
    measured = json.load(open(path))["measurements"]
    unused = [rule for _, rule, _ in RULES if not any(each["rule"] == rule for each in measured)]
    undecided = [each["name"] for each in measured if each["rule"] != BASELINE and not each["decision"]]
    for each in measured:
        print(f"{each['name']}: {each['decision']}")
    if unused or undecided:
        sys.exit(f"rules without a measurement: {unused}; measurements without a decision: {undecided}")
    print(f"{len(measured)} measurements, {len(RULES)} rules")


def append(path, label, results):
    with open(path, "a") as file:
        for result in results:
            file.write(json.dumps({"label": label, "result": result}) + "\n")


def note(a):
    text = sys.stdin.read()
    results = read_results(text)
    if not results:
        sys.exit(f"{a.label}: nothing was measured: {text[-500:]}")
    append(a.notes, a.label, results)
    for result in results:
        for name, value, unit in measurements(a.label, result):
            print(f"{name:<72} {value:>12.4f} {unit}" if isinstance(value, (int, float)) else f"{name}: {value}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, arguments in [("note", ["label"]), ("check", ["name", "outcome", "seconds"]), ("write", ["file"]), ("canned", [])]:
        sub = commands.add_parser(command)
        for argument in ["notes", *arguments]:
            sub.add_argument(argument)
    commands.add_parser("every-rule").add_argument("file")
    a = parser.parse_args()
    if a.command == "note":
        note(a)
    elif a.command == "canned":
        for label, result in canned():
            append(a.notes, label, [result])
    elif a.command == "every-rule":
        every_rule(a.file)
    elif a.command == "check":
        append(a.notes, "check", [{"check": a.name, "outcome": a.outcome, "seconds": float(a.seconds)}])
    else:
        with open(a.file, "w") as file:
            json.dump(report(read_notes(a.notes)), file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
