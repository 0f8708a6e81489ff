#!/usr/bin/env python3
"""Tests scripts/peers/pytorch_step.py, PyTorch's step for comparison with ours: its network, batches, dropout and options.

  peer_steps.py ROOT
"""
import gc
import importlib.util
import json
import sys
import weakref
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F

import reference_model
from common import run, run_cases

SCRIPT = Path(sys.argv[1]).resolve() / "scripts/peers/pytorch_step.py"
SMALL = ["--layers", "2", "--heads", "2", "--width", "16", "--context", "12", "--batch", "3", "--vocabulary", "11"]
CPU = torch.device("cpu")

specification = importlib.util.spec_from_file_location("pytorch_step", SCRIPT)
peer = importlib.util.module_from_spec(specification)
specification.loader.exec_module(peer)


def make(*more):
    a, _ = peer.parse_arguments([*SMALL, *more])
    torch.manual_seed(3)
    return a, peer.Gpt(a)


def batch_of(a):
    generator = torch.Generator().manual_seed(5)
    return torch.randint(a.vocabulary, (2, a.batch, a.context), generator=generator)


def gradients(model, run_model, batch):
    model.zero_grad(set_to_none=True)
    run_model(*batch).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def check_network():
    """The loss equals that of the formulas."""
    a, model = make()
    model.double()
    weights = dict(model.named_parameters())
    ids, targets = batch_of(a)

    def mixed(block, x):
        w = {name.removeprefix(f"blocks.{block}."): value for name, value in weights.items()}
        q, k, v = (reference_model.heads(part, a.heads) for part in F.linear(x, w["query_key_value.weight"]).chunk(3, -1))
        score = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        later = torch.ones(a.context, a.context).triu(1).bool()
        t = score.masked_fill(later, -torch.inf).softmax(-1) @ v
        return F.linear(t.transpose(1, 2).flatten(2), w["output.weight"])

    x = weights["token_table.weight"][ids] + weights["position_table.weight"]

    def norm(name, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weights[name + ".weight"]

    for block in range(a.layers):
        x = x + mixed(block, norm(f"blocks.{block}.attention_norm", x))
        h = F.linear(norm(f"blocks.{block}.hidden_norm", x), weights[f"blocks.{block}.up.weight"])
        x = x + F.linear(h * (1 + torch.erf(h / 2**0.5)) / 2, weights[f"blocks.{block}.down.weight"])
    logits = norm("norm", x) @ weights["token_table.weight"].T
    expected = -logits.log_softmax(-1).gather(2, targets[:, :, None]).mean()
    difference = abs(model(ids, targets).item() - expected.item())
    assert difference < 1e-12, difference
    assert len(weights) == 2 + 6 * a.layers + 1 and "bias" not in " ".join(weights)
    return f"losses differ by {difference:.1e}"


def check_compiled():
    a, model = make()
    eager = gradients(model, model, batch_of(a))
    compiled = gradients(model, peer.compiled(model), batch_of(a))
    worst = max((eager[name] - compiled[name]).norm() / eager[name].norm() for name in eager)
    assert len(eager) == len(compiled) == 15 and worst < 1e-5, worst
    return f"gradients differ by {worst:.1e}"


def check_batches():
    """Rows are windows of the text, and targets their next tokens; the windows start at all places."""
    a, _ = make()
    tokens = (torch.arange(40) % 23).numpy().astype("uint16")
    for kind in (peer.DeviceBatches, peer.PinnedBatches):
        torch.manual_seed(1)
        batches, starts = kind(tokens, a, CPU), set()
        for _ in range(100):
            ids, targets = batches.next()
            batches.prefetch()
            assert ids.shape == targets.shape == (3, 12) and torch.equal(ids[:, 1:], targets[:, :-1])
            assert torch.equal((ids + 1) % 23, targets)
            starts.update(row.item() for row in ids[:, 0])
        assert starts == set(range(23)), (kind, starts)  # the text has 28 windows, from 0 to 27
    return "windows"


def check_dropout():
    """Losses are random in training but not in evaluation; embeddings, branches and attention weights are dropped."""
    a, model = make("--dropout", "0.5")
    batch = batch_of(a)
    losses = {model(*batch).item() for _ in range(5)}
    model.eval()
    assert len(losses) == 5 and model(*batch).item() == model(*batch).item()
    model.train()
    seen = []
    usual = F.scaled_dot_product_attention
    peer.functional.scaled_dot_product_attention = lambda *given, **options: seen.append(options) or usual(*given, **options)
    dropped = []
    drop = F.dropout
    peer.functional.dropout = lambda x, p, training: dropped.append((tuple(x.shape), p, training)) or drop(x, p, training)
    try:
        model(*batch)
    finally:
        peer.functional.scaled_dot_product_attention, peer.functional.dropout = usual, drop
    assert seen == [{"dropout_p": 0.5, "is_causal": True}] * 2, seen
    assert dropped == [((3, 12, 16), 0.5, True)] * 5, dropped  # the embedding, and two branches of two blocks
    return "in 2 + 5 places"


def check_step():
    """A step is clipping and torch.optim.AdamW; only matrices decay."""
    a, model = make()
    optimizer = peer.make_optimizer(model, CPU)
    decays = {group["weight_decay"]: len(group["params"]) for group in optimizer.param_groups}
    assert decays == {0.1: 10, 0.0: 5}, decays
    torch.manual_seed(1337)
    step = peer.make_step(a, CPU)
    torch.manual_seed(1337)
    model = peer.Gpt(a)
    groups = [[p for p in model.parameters() if (p.dim() > 1) == matrix] for matrix in (True, False)]
    slow = torch.optim.AdamW([{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1], "weight_decay": 0.0}],
                             lr=1e-3, betas=(0.9, 0.99), foreach=False)
    batches = peer.DeviceBatches(peer.read_tokens(a), a, CPU)
    worst = 0
    for _ in range(5):
        state = torch.get_rng_state()
        given = step()
        torch.set_rng_state(state)
        loss = model(*batches.next())
        loss.backward()
        size = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
        for parameter in model.parameters():
            parameter.grad *= min(1.0, 1.0 / size.item())
        slow.step()
        slow.zero_grad()
        worst = max(worst, abs(given.item() - loss.item()))
    assert not given.requires_grad and worst < 1e-5, worst
    return f"losses of 5 steps differ by {worst:.1e}"


def check_record():
    """A recorded step keeps the step that its graph uses. CUDA is replaced by a stand-in here."""
    a, _ = make()
    stand_ins = {name: mock.MagicMock() for name in ("Stream", "CUDAGraph", "stream", "graph", "current_stream", "synchronize")}
    with mock.patch.multiple(torch.cuda, **stand_ins):
        step = peer.make_step(a, CPU)
        used = weakref.ref(step)
        step = peer.record(step, warmup=3)
        gc.collect()
        assert used() is not None and step().item() > 0
    return "kept"


def check_output():
    for options, key, value in [((), "batches", "device"), (("--batches", "pinned"), "batches", "pinned"),
                                (("--dropout", "0.2"), "dropout", 0.2), (("--precision", "bf16"), "precision", "bf16"),
                                (("--precision", "tf32"), "precision", "tf32")]:
        found = json.loads(run(sys.executable, SCRIPT, *SMALL, "--steps", "2", "--rounds", "3", "--warmup", "1", *options))
        assert found[key] == value and found["device"] == "cpu" and not found["compiled"] and not found["graph"], found
        assert len(found["rounds_ms"]) == 3 and sorted(found["rounds_ms"])[1] == found["ms_per_step"] > 0, found
        assert 1 < found["loss"] < 4 and found["peak_memory_bytes"] > 1e6, found
    return "one line of JSON"


def check_rows():
    """The line of a row that fails, here because its text is too short, has the error."""
    options = [*SMALL, "--steps", "2", "--warmup", "0"]
    said = run(sys.executable, SCRIPT, *options, "--row=--dropout 0.2", "--row=--context 1000000",
               "--row=--precision bf16", code=1, stream="stdout")
    first, second, third = map(json.loads, said.splitlines())
    assert (first["dropout"], third["dropout"], third["precision"]) == (0.2, 0.0, "bf16"), said
    assert "failed" in second and first["ms_per_step"] > 0 and third["ms_per_step"] > 0, said
    assert "unrecognized arguments: --graf" in run(sys.executable, SCRIPT, *SMALL, "--row=--graf", code=2)
    return "3 rows"


def check_refusals():
    errors = {("--graph",): "needs a CUDA device", ("--graph", "--device", "cuda", "--batches", "pinned"): "",
              ("--text", __file__): "more than --vocabulary 11"}
    if not torch.cuda.is_available():
        errors[("--device", "cuda")] = "no CUDA device here"
    for options, text in errors.items():
        said = run(sys.executable, SCRIPT, *SMALL, *options, code=2)
        assert text in said and said.count("\n") == 1, (options, said)
    return f"{len(errors)} errors"


if __name__ == "__main__":
    run_cases({name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")})
