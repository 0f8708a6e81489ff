"""Models over metaformer's weights in plain PyTorch, written from the formulas and not from the C++ code: every mixer, norm
and feed-forward branch, in float64. `weights` is what safetensors.torch.load_file gives, in float64.

  forward(config, weights, ids)              logits [b, c, v] of a GPT
  classify(config, weights, ids, segments)   logits [b, classes] of a classifier; segment -1 is padding
"""
import math

import torch
import torch.nn.functional as F


def linear(weights, name, x):
    return F.linear(x, weights[name + ".weight"], weights.get(name + ".bias"))


def norm(weights, name, options, x):
    if options["kind"] == "rms_norm":
        return x * (x.square().mean(-1, keepdim=True) + options["epsilon"]).rsqrt() * weights[name + ".weight"]
    return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights.get(name + ".bias"), options["epsilon"])


def heads(x, n):
    b, c, d = x.shape
    return x.view(b, c, n, d // n).transpose(1, 2)


def softmax_mix(scores, values, k, visible):
    """visible: [b, c, c]. A token that sees nothing gets zeros."""
    visible = visible.unsqueeze(1)
    weights = torch.softmax((scores / math.sqrt(k)).masked_fill(~visible, -1e30), -1) * visible
    return (weights @ values).transpose(1, 2).flatten(2)


def pool(x, window, visible, causal):
    """The mean over a window of visible tokens, minus the token; zeros where nothing is visible."""
    c = x.shape[1]
    window = 2 * c if window == "all" else window
    before, after = (window - 1, 0) if causal else (window // 2, (window - 1) // 2)
    offset = torch.arange(c)[None, :] - torch.arange(c)[:, None]
    counted = (visible & (-before <= offset) & (offset <= after)).to(x.dtype)
    count = counted.sum(2, keepdim=True)
    return counted @ x / count.clamp(min=1) - x * (count > 0)


def lower(packed, k):
    rows, columns = torch.tril_indices(k, k)
    m = torch.zeros(packed.shape[0], k, k, dtype=packed.dtype)
    return m.index_put((torch.arange(packed.shape[0])[:, None], rows[None], columns[None]), packed)


def metric_tensor(weights, name, options, n, k):
    constraint = options["constraint"]
    if constraint == "symmetric":
        m = lower(weights[name + ".packed_metric"], k)
        return m + m.tril(-1).transpose(1, 2)
    if constraint == "psd":
        m = lower(weights[name + ".packed_factor"], k)
        return m @ m.transpose(1, 2)
    if constraint == "diagonal":
        m = weights[name + ".diagonal_metric"]
        return torch.diag_embed(F.softplus(m) if options["score"] == "distance" else m)
    return torch.eye(k, dtype=torch.float64).repeat(n, 1, 1)


def published(p, m):
    """r_cc' for c >= c', mirrored; twice each pair of features and each pair of tokens."""
    once = torch.diag_embed(torch.diagonal(m, dim1=1, dim2=2)) + 2 * m.tril(-1)
    r = torch.einsum("bnck,nkj,bnej->bnce", p, once, p)
    below = 2 * r.tril(-1)
    return below + below.transpose(2, 3) + torch.diag_embed(torch.diagonal(r, dim1=2, dim2=3))


def mixer(weights, name, options, x, n, visible, causal):
    kind, k = options["kind"], x.shape[-1] // n
    if kind == "identity":
        return x
    if kind == "none":
        return torch.zeros_like(x)
    if kind == "average_pooling":
        return pool(x, options["window"], visible, causal)
    if kind == "scaled_dot_product":
        q, key, v = (heads(t, n) for t in linear(weights, name + ".query_key_value", x).chunk(3, -1))
        t = softmax_mix(q @ key.transpose(2, 3), v, k, visible)
    else:
        p = heads(linear(weights, name + ".projection", x), n)
        if kind == "quadratic":
            if options["form"] == "full":
                r = torch.einsum("bcd,nde,bfe->bncf", x, weights[name + ".full_form"], x)
            else:
                r = torch.einsum("bnck,nkj,bnej->bnce", p, weights[name + ".form"], p)
        else:
            m = metric_tensor(weights, name, options, n, k)
            if options["score"] == "as_published":
                r = published(p, m)
            elif options["score"] == "distance":
                difference = p.unsqueeze(3) - p.unsqueeze(2)
                r = -torch.einsum("bncek,nkj,bncej->bnce", difference, m, difference)
            else:
                r = torch.einsum("bnck,nkj,bnej->bnce", p, m, p)
        t = softmax_mix(r, p, k, visible)
    return linear(weights, name + ".output", t)


def activation(options, x):
    return {
        "gelu": lambda: F.gelu(x),
        "gelu_tanh": lambda: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
        "relu": lambda: x.clamp(min=0),
        "silu": lambda: x / (1 + torch.exp(-options["beta"] * x)),
        "relu_squared": lambda: x.clamp(min=0) ** 2,
    }[options["kind"]]()


def feed_forward(weights, name, options, x):
    hidden = linear(weights, name + ".up", x)
    if options["kind"] == "gated":
        gate, up = hidden.chunk(2, -1)
        return linear(weights, name + ".down", activation(options["activation"], gate) * up)
    y = linear(weights, name + ".down", activation(options["activation"], hidden))
    return activation(options["activation"], y) if options["output_activation"] else y


def apply_branch(weights, name, model, branch, x):
    position = model["norm"]["position"]
    y = branch(x if position == "post" else norm(weights, name + "_norm", model["norm"], x))
    if position == "both":
        y = norm(weights, name + "_output_norm", model["norm"], y)
    if model["residual"]:
        y = x + y
    return norm(weights, name + "_norm", model["norm"], y) if position == "post" else y


def trunk(config, weights, ids, segments, causal):
    model, name = config["model"], "transformer."
    c = ids.shape[1]
    visible = (segments[:, :, None] == segments[:, None, :]) & (segments >= 0)[:, :, None]
    if causal:
        visible = visible & torch.ones(c, c, dtype=torch.bool).tril()
    x = weights[name + "token_embedding.weight"][ids] + weights[name + "position_embedding.weight"][:c]
    for layer in range(model["layers"]):
        block = f"{name}blocks.{layer}."
        x = apply_branch(
            weights, block + "mixer", model,
            lambda y: mixer(weights, block + "mixer", model["mixer"], y, model["heads"], visible, causal), x)
        x = apply_branch(
            weights, block + "feed_forward", model,
            lambda y: feed_forward(weights, block + "feed_forward", model["feed_forward"], y), x)
    return x if model["norm"]["position"] == "post" else norm(weights, name + "final_norm", model["norm"], x)


def forward(config, weights, ids):
    x = trunk(config, weights, ids, torch.zeros_like(ids), causal=True)
    table = "transformer.token_embedding.weight" if config["model"]["embedding"]["tie"] else "head.weight"
    return x @ weights[table].T


def classify(config, weights, ids, segments):
    head = config["task"]["head"]["kind"]
    if head == "first_token":
        class_token = torch.full_like(ids[:, :1], len(weights["transformer.token_embedding.weight"]) - 1)
        ids, segments = torch.cat((class_token, ids), 1), torch.cat((torch.zeros_like(class_token), segments), 1)
    x = trunk(config, weights, ids, segments, causal=False)
    real = (segments >= 0).unsqueeze(2).to(x.dtype)

    def mean(y):
        return (y * real).sum(1) / real.sum(1)

    if head == "per_token_mean":
        return mean(linear(weights, "head", x))
    if head == "mean_pooled":
        return linear(weights, "head", norm(weights, "pooled_norm", config["model"]["norm"], mean(x)))
    return linear(weights, "head", x[:, 0])
