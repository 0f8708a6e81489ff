"""A GPT over metaformer's weights in plain PyTorch, written from the formulas and not from the C++ code: every mixer, pre-
and post-norm, causal, in float64. `forward(config, weights, ids)` returns logits; `weights` is what
safetensors.torch.load_file gives, in float64.
"""
import math

import torch
import torch.nn.functional as F


def linear(weights, name, x):
    return F.linear(x, weights[name + ".weight"], weights.get(name + ".bias"))


def norm(weights, name, x):
    return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights.get(name + ".bias"))


def heads(x, n):
    b, c, d = x.shape
    return x.view(b, c, n, d // n).transpose(1, 2)


def softmax_mix(scores, values, k):
    c = scores.shape[-1]
    future = torch.ones(c, c, dtype=torch.bool).triu(1)
    weights = torch.softmax((scores / math.sqrt(k)).masked_fill(future, float("-inf")), -1)
    return (weights @ values).transpose(1, 2).flatten(2)


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
    """r_cc' for c >= c', twice each pair of features and each pair of tokens; the future is masked anyway."""
    once = torch.diag_embed(torch.diagonal(m, dim1=1, dim2=2)) + 2 * m.tril(-1)
    r = torch.einsum("bnck,nkj,bnej->bnce", p, once, p)
    return 2 * r - torch.diag_embed(torch.diagonal(r, dim1=2, dim2=3))


def mixer(weights, name, options, x, n):
    kind, k = options["kind"], x.shape[-1] // n
    if kind == "identity":
        return x
    if kind == "none":
        return torch.zeros_like(x)
    if kind == "average_pooling":
        c = x.shape[1]
        window = c if options["window"] == "all" else options["window"]
        ones = torch.ones(c, c, dtype=x.dtype)
        seen = ones.tril() - ones.tril(-window)
        return (seen / seen.sum(1, keepdim=True)) @ x - x
    if kind == "scaled_dot_product":
        q, key, v = (heads(t, n) for t in linear(weights, name + ".query_key_value", x).chunk(3, -1))
        t = softmax_mix(q @ key.transpose(2, 3), v, k)
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
        t = softmax_mix(r, p, k)
    return linear(weights, name + ".output", t)


def feed_forward(weights, name, activation, x):
    hidden = linear(weights, name + ".up", x)
    return linear(weights, name + ".down", F.gelu(hidden) if activation == "gelu" else F.relu(hidden))


def forward(config, weights, ids):
    model = config["model"]
    trunk = "transformer."
    x = weights[trunk + "token_embedding.weight"][ids] + weights[trunk + "position_embedding.weight"][: ids.shape[1]]
    for layer in range(model["layers"]):
        block = f"{trunk}blocks.{layer}."
        branches = (
            ("mixer_norm", lambda y: mixer(weights, block + "mixer", model["mixer"], y, model["heads"])),
            ("feed_forward_norm",
             lambda y: feed_forward(weights, block + "feed_forward", model["feed_forward"]["activation"], y)),
        )
        for norm_name, branch in branches:
            if model["norm"]["position"] == "pre":
                x = x + branch(norm(weights, block + norm_name, x))
            else:
                x = norm(weights, block + norm_name, x + branch(x))
    if model["norm"]["position"] == "pre":
        x = norm(weights, trunk + "final_norm", x)
    table = trunk + "token_embedding.weight" if model["tie_embeddings"] else "head.weight"
    return x @ weights[table].T
