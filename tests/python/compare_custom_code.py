"""Models that `transformers` lacks, exported with the Python files that compute them: for every mixer, kind of positions, norm and
feed-forward branch, and for the models without blocks, AutoModelForCausalLM gives the logits of our program; `generate` writes the
text of `sample --temperature 0`, also in a batch with padding; and an export can be imported.

usage: compare_custom_code.py DUMP_MODEL METAFORMER
"""
import functools
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

import pretrained  # before transformers, which must stay offline
from transformers import AutoModelForCausalLM, AutoTokenizer, logging

from common import in_folder, run, run_cases, sets
from compare_model import (BIASED, FEED_FORWARDS, HYBRIDS, MIXERS, NORMS, OTHERS, PLAIN, POSITIONED, POSITIONS,
                           check_that_every_kind_is_here, of_mixer, relative_error)

DUMP_MODEL, METAFORMER = (Path(argument).resolve() for argument in sys.argv[1:3])
metaformer = functools.partial(run, METAFORMER)

COMMON = ["model.layers=2", "model.heads=3", "model.width=24", "model.context=17"]
LONG = ["model.layers=2", "model.heads=2", "model.width=16", "model.context=150"]
STATES = ("linear_attention", "retention", "gated_linear_attention", "mamba2", "delta_net", "gated_delta_net", "rwkv7")
MODELS = {
    **{f"{mixer}, {name}": [*COMMON, *of_mixer(mixer), *options] for name, options in (("plain", PLAIN), ("biased", BIASED))
       for mixer in MIXERS if mixer != "fourier"},  # whose tokens see later ones
    **{f"{mixer}, positions {positions}": [*COMMON, *of_mixer(mixer), f"model.positions={positions}"]
       for mixer in POSITIONED for positions in POSITIONS},
    **{name: [*COMMON, *options, "model.mixer=metric", "model.bias=true"] for name, options in NORMS.items()},
    **{f"feed-forward {branch}": [*COMMON, f"model.feed_forward={branch}", "model.mixer=metric"] for branch in FEED_FORWARDS},
    **{name: [*COMMON, *options] for name, options in HYBRIDS.items()},
    **{model: [f"model={model}"] for model in OTHERS},
    "reversible": [*COMMON, "model.blocks=reversible", "model.mixer=[metric, mamba2]", "model.norm.position=both"],
    "no final norm": [*COMMON, "model.norm.final=false"],
    "rwkv7 behind others": ["model.layers=5", *COMMON[1:], "model.mixer=[mamba2, rwkv7]"],
    "sinusoidal, an odd width": ["model.layers=1", "model.heads=1", "model.width=15", "model.context=17",
                                 "model.positions={kind: sinusoidal, base: 50}"],
    # More tokens than a chunk of the recurrence, or than LSH attention sees in full.
    **{f"{mixer}, long": [*LONG, f"model.mixer={mixer}"] for mixer in (*STATES, "hyena", "{kind: average_pooling, window: 40}")},
    **{f"lsh, long, {visible}": [*LONG, f"model.mixer={{kind: lsh, chunk: 16, rounds: 3, visible: {visible}}}"]
       for visible in ("chunk", "bucket")},
}
NATIVE = ("scaled_dot_product, plain", "scaled_dot_product, biased", "scaled_dot_product, positions learned")  # GPT-2
SMALL = 1e-5  # relative L2 error of logits in float32


def load(folder, **options):
    """The model, all of whose weights are in the folder."""
    model, found = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, output_loading_info=True, **options)
    assert not any(found.values()), found
    return model.eval()


def check_logits(root, *names):
    arguments = [word for name in names for word in ("--", root / name, "exported", *MODELS[name])]
    run(DUMP_MODEL, *arguments[1:])
    errors = {}
    for name in names:
        expected = load_file(root / name / "expected.safetensors")
        model = load(root / name / "exported")
        assert model.config.model_type == ("gpt2" if name in NATIVE else "metaformer"), (name, model.config.model_type)
        with torch.no_grad():
            errors[name] = relative_error(model(expected["ids"]).logits, expected["logits"].double())
    worst = max(errors, key=errors.get)
    found = f"worst error {errors[worst]:.1e} ({worst}) of {len(errors)}"
    assert errors[worst] <= SMALL, found
    return found


TEXT = "".join(f"{words}, or not {words}: that is the question {number}.\n"
               for number, words in enumerate(["to be", "to see"] * 60))
BLOCKS = {"layers": 2, "heads": 2, "width": 16, "context": 24}
MEMORY = {**BLOCKS, "memory": 8}
KINDS = ("scaled_dot_product", "quadratic", "metric", "lsh", "differential", *STATES, "short_convolution", "hyena",
         "spatial_gating", "static", "random", "average_pooling", "identity", "none")
# {name: the model, options of `sample`, the number of tokens}. Models that read texts of any length go beyond their context.
RUNS = {
    **{kind: ({**BLOCKS, "mixer": kind}, [], 18) for kind in KINDS if kind != "scaled_dot_product"},
    **{f"{kind} without positions": ({**BLOCKS, "mixer": kind, "positions": "none"}, [], 80)
       for kind in (*STATES, "short_convolution", "identity")},
    "lsh in chunks": ({**BLOCKS, "mixer": {"kind": "lsh", "chunk": 4, "rounds": 2}}, ["--no-cache"], 18),
    "rotary": ({**BLOCKS, "mixer": "metric", "positions": "rotary"}, [], 18),
    "a hybrid": ({**BLOCKS, "layers": 3, "mixer": ["mamba2", "rwkv7", "quadratic"], "convolution": 3,
                  "norm": {"kind": "rms_norm", "position": "both"}, "feed_forward": "gated"}, [], 18),
    "memory, Transformer-XL": ({**MEMORY, "mixer": "metric", "positions": "transformer_xl"}, [], 80),
    "memory, one length": ({**MEMORY, "mixer": "scaled_dot_product", "positions": "shaw", "same_length": True}, [], 80),
    "memory, positions of segments": ({**MEMORY, "mixer": ["average_pooling", "scaled_dot_product"]}, [], 80),
    "memory and a state": ({**MEMORY, "mixer": ["mamba2", "scaled_dot_product"], "positions": "alibi"}, [], 80),
    "lstm": ({"kind": "lstm", "width": 16, "context": 24}, [], 80),
    "gru": ({"kind": "gru", "width": 16, "context": 24, "embedding": {"tie": False}, "carry_state": True}, [], 80),
    "feed_forward": ({"kind": "feed_forward", "width": 8, "hidden": 16, "context": 24, "window": 5}, [], 80),
}


def export(root, model):
    pretrained.train_run(METAFORMER, root, TEXT, model, "character", steps=200, batch_size=4)
    metaformer("export", "--run", "run", "--out", "exported", cwd=root)


def padded(texts, side):
    """The ids and the attention mask of texts in one batch."""
    width = max(len(text) for text in texts) + 2
    ids = torch.full((len(texts), width), 10**6)  # padding need not be a token
    mask = torch.zeros(len(texts), width, dtype=torch.long)
    for row, text in enumerate(texts):
        place = slice(width - len(text), width) if side == "left" else slice(len(text))
        ids[row, place], mask[row, place] = text, 1
    return ids, mask


def require_equal_in_batch(model, texts):
    alone = [model(text[None]).logits[0] for text in texts]
    for side in ("left", "right"):
        ids, mask = padded(texts, side)
        together = model(ids, attention_mask=mask).logits
        for row, logits in enumerate(alone):
            error = relative_error(together[row, mask[row] == 1], logits.double())
            assert error <= SMALL, f"row {row}, padding on the {side}: error {error:.1e}"


def check_run(root, name):
    options, arguments, count = RUNS[name]
    export(root, options)
    tok = AutoTokenizer.from_pretrained(root / "exported", padding_side="left")
    tok.pad_token = "\n"
    model = load(root / "exported")
    prompts = ["to be", "t", "or no"]
    greedy = functools.partial(model.generate, max_new_tokens=count, do_sample=False)
    with torch.no_grad():
        require_equal_in_batch(model, [torch.tensor(tok(prompt)["input_ids"]) for prompt in prompts])
        batch = greedy(**tok(prompts, return_tensors="pt", padding=True))
        for row, prompt in enumerate(prompts):
            inputs = tok(prompt, return_tensors="pt")
            written = tok.decode(greedy(**inputs)[0, inputs["input_ids"].shape[1]:])
            in_batch = tok.decode(batch[row, -count:])
            assert in_batch == written, (in_batch, written)
            ours = json.loads(metaformer("sample", "--run", "run", "--prompt", prompt, "--tokens", count, "--temperature", 0,
                                         "--json", *arguments, cwd=root))["text"]
            assert written == ours, (written, ours)
        inputs["labels"] = inputs["input_ids"]
        assert model(**inputs).loss.isfinite()
    return repr(ours)


def check_errors(root):
    """A text that is longer than the context is one clear error."""
    for kind in ("metric", "static"):
        folder = root / kind
        folder.mkdir()
        export(folder, {**BLOCKS, "mixer": kind, "positions": "learned" if kind == "metric" else "none"})
        model = load(folder / "exported")
        ids = torch.zeros(1, 25, dtype=torch.long)
        try:
            model(ids)
        except ValueError as error:
            assert "25 tokens is longer than this model's context, 24 tokens" in str(error), error
        else:
            raise AssertionError("no error")
        mask = torch.ones_like(ids)
        mask[0, 0] = 0
        model(ids, attention_mask=mask)  # padding does not count
    return "positions and tables have an end"


def check_again(root):
    """An export of `save_pretrained`, in half precision, and an import of the export with another export."""
    export(root, {**MEMORY, "mixer": ["mamba2", "metric"], "positions": "transformer_xl"})
    model = load(root / "exported")
    ids = torch.arange(12)[None]
    with torch.no_grad():
        logits = model(ids).logits
        load(root / "exported", dtype=torch.bfloat16)(ids)
        model.save_pretrained(root / "saved")
        assert torch.equal(load(root / "saved")(ids).logits, logits)
    metaformer("config", "import", "exported", "--out", "again.yaml", cwd=root)
    metaformer("train", "--config", "again.yaml", *sets("data.path=text.txt", "train.steps=1", "train.batch_size=2",
                                                        "train.learning_rate=1e-20"), "--out", "again", "--quiet", cwd=root)
    metaformer("export", "--run", "again", "--out", "exported_again", cwd=root)
    with torch.no_grad():
        assert torch.equal(load(root / "exported_again")(ids).logits, logits)
    return "the same logits"


def check_training(root):
    """Gradients flow through the code: a few steps of AdamW lower the loss."""
    export(root, {**BLOCKS, "layers": 4, "dropout": 0.1, "mixer": ["rwkv7", "gated_delta_net", "metric", "hyena"]})
    torch.manual_seed(1)
    model, tok = load(root / "exported").train(), AutoTokenizer.from_pretrained(root / "exported")
    ids = torch.tensor(tok(TEXT[:960])["input_ids"]).view(40, 24)
    optimiser = torch.optim.AdamW(model.parameters(), 0.005)
    losses = []
    for _ in range(15):
        losses.append(model(ids, labels=ids).loss)
        optimiser.zero_grad()
        losses[-1].backward()
        optimiser.step()
    missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not missing and losses[-1] < losses[0] - 0.2, (missing, losses[0].item(), losses[-1].item())
    return f"{losses[0].item():.3f} to {losses[-1].item():.3f}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    names = list(MODELS)
    run_cases({
        "kinds of model.mixer": functools.partial(check_that_every_kind_is_here, METAFORMER, "model.mixer", [*KINDS, "fourier"]),
        "kinds of model.positions": functools.partial(check_that_every_kind_is_here, METAFORMER, "model.positions", POSITIONS),
        **{f"logits, {names[first]} to {names[min(first + 24, len(names)) - 1]}": in_folder(check_logits, *names[first:first + 24])
           for first in range(0, len(names), 24)},
        **{f"text, {name}": in_folder(check_run, name) for name in RUNS},
        "texts beyond the context": in_folder(check_errors),
        "saved, imported and exported again": in_folder(check_again),
        "training": in_folder(check_training)})
