"""Models over metaformer's weights in plain PyTorch, written from the formulas and not from the C++ code: every mixer, norm,
feed-forward branch and kind of positions, in float64. `weights` is what safetensors.torch.load_file gives, in float64.

  forward(config, weights, ids)              logits [b, c, v] of a GPT
  unmask(config, weights, ids, segments)     logits [b, c, v] of a masked language model, whose last embedding is the mask's
  classify(config, weights, ids, segments)   logits [b, classes] of a classifier; segment -1 is padding
  recurrent(config, weights, ids)            logits [b, c, v] of torch.nn.LSTM or torch.nn.GRU
  feed_forward_model(config, weights, ids)   logits [b, c, v] of the model of Bengio et al. (2003)

Given a list, `seen` gets the scores (scaled, not masked) and the attention of every layer, [b, n, c, c].
"""
import math

import torch
import torch.nn.functional as F

import lsh
import place_mixers
import regions
import state_mixers


def linear(weights, name, x):
    return F.linear(x, weights[name + ".weight"], weights.get(name + ".bias"))


def norm(weights, name, options, x):
    if options["kind"] == "rms_norm":
        return x * (x.square().mean(-1, keepdim=True) + options["epsilon"]).rsqrt() * weights[name + ".weight"]
    return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights.get(name + ".bias"), options["epsilon"])


def heads(x, n):
    b, c, d = x.shape
    return x.view(b, c, n, d // n).transpose(1, 2)


def rotated(x, options):
    """Rotates feature l of the first half of the rotated features and its partner in the second half by c base^(-l / pairs)."""
    pairs = int(options["fraction"] * x.shape[-1]) // 2
    frequency = options["base"] ** (-torch.arange(pairs, dtype=x.dtype) / pairs)
    angle = torch.outer(torch.arange(x.shape[2], dtype=x.dtype), frequency)
    first, second, rest = x.split((pairs, pairs, x.shape[-1] - 2 * pairs), -1)
    return torch.cat((first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin(), rest), -1)


def alibi_slopes(n):
    power = 2 ** int(math.log2(n))
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    return torch.tensor(slopes + [2 ** (-8 * i / (2 * power)) for i in range(1, 2 * (n - power), 2)], dtype=torch.float64)


def t5_bucket(offset, options, causal):
    """The bucket of an offset, key minus query: one for each distance in the first half, then logarithmic; later keys have the
    upper buckets."""
    buckets = options["buckets"] if causal else options["buckets"] // 2
    distance = (-offset).clamp(min=0) if causal else offset.abs()
    exact = buckets // 2
    span = math.log(options["max_distance"] / exact)
    far = torch.log(distance.clamp(min=1).float() / exact) / span * (buckets - exact)
    bucket = torch.where(distance < exact, distance, (exact + far.long()).clamp(max=buckets - 1))
    return bucket if causal else bucket + buckets * (offset > 0)


def score_bias(weights, options, n, c, causal):
    """The bias that positions add to the scaled scores, [n, c, c], or 0."""
    offset = torch.arange(c)[None, :] - torch.arange(c)[:, None]
    if options["kind"] == "alibi":
        return -alibi_slopes(n)[:, None, None] * offset.abs()
    if options["kind"] == "t5":
        return weights["transformer.score_bias.weight"][t5_bucket(offset, options, causal)].permute(2, 0, 1)
    return 0


def distance_terms(weights, name, query, key, form, is_distance, options):
    """Transformer-XL's terms b, c and d (Dai et al. 2019, section 3.3) for every pair. `form`, [n, k, j], turns vectors into
    queries, or is None; a distance has the terms of both of its halves."""
    n, c, d = query.shape[1], query.shape[2], weights[name + ".positions.projection.weight"].shape[1]
    biases = "transformer.distance_biases" if options["shared_biases"] else name + ".positions.biases"
    u, v = (weights[f"{biases}.{part}"] for part in ("content", "distance"))
    image = (lambda x: torch.einsum("nk,nkj->nj", x, form)) if form is not None else lambda x: x
    distance = (torch.arange(c)[:, None] - torch.arange(c)[None, :]).double()
    if options["clamp_length"] > 0:
        distance = distance.clamp(-options["clamp_length"], options["clamp_length"])
    angle = distance[:, :, None] * 10000 ** (-torch.arange(0, d, 2).double() / d)
    encoding = torch.cat((angle.sin(), angle.cos()), -1)
    r = (encoding @ weights[name + ".positions.projection.weight"].T).unflatten(-1, (n, -1))
    terms = torch.einsum("bnck,cenk->bnce", query + image(v)[:, None], r) + (image(u)[:, None] @ key.transpose(2, 3))
    return terms - torch.einsum("cenk,nkj,cenj->nce", r, form, r) / 2 if is_distance else terms


def attention_of(r, visible, options, sink):
    """The attention weights of scaled scores [b, n, c, c]: their softmax, with the sink of each head if there is one, or
    sigmoids."""
    if options.get("window", 0) > 0:
        place = torch.arange(r.shape[-1])
        visible = visible & ((place[:, None] - place[None, :]).abs() < options["window"])
    if options.get("weights") == "sigmoid":
        return torch.sigmoid(r - visible.sum(-1, keepdim=True).clamp(min=1).to(r.dtype).log()) * visible
    r = r.masked_fill(~visible, -1e30)
    if sink is not None:
        r = torch.cat((r, sink[None, :, None, None].expand(r.shape[0], -1, r.shape[2], 1)), -1)
    return torch.softmax(r, -1)[..., :visible.shape[-1]] * visible


def mix(weights, name, query, key, offsets, values, context, form=None, is_distance=False, options={}, k=None):
    """softmax((query . key + offsets) / sqrt(k) + bias) over the visible keys, times the values; k is by default their width. A
    token that sees nothing gets zeros. `offsets`: parts of the score that positions do not change, or 0. `form`: see
    distance_terms. `options`: those of the attention weights."""
    positions, c = context["positions"], values.shape[2]
    k = k or values.shape[-1]
    if positions["kind"] == "rotary":
        query, key = rotated(query, positions), rotated(key, positions)
    r = query @ key.transpose(2, 3) + offsets
    if positions["kind"] == "shaw":
        most = positions["max_distance"]
        row = (torch.arange(c)[None, :] - torch.arange(c)[:, None]).clamp(-most, most) + most
        r = r + torch.einsum("bnci,cei->bnce", query, weights[name + ".positions.keys"][row])
    if positions["kind"] == "transformer_xl":
        r = r + distance_terms(weights, name, query, key, form, is_distance, positions)
    r = r / math.sqrt(k) + context["bias"]
    attention = attention_of(r, context["visible"].unsqueeze(1), options, weights.get(name + ".sinks"))
    if context["seen"] is not None:
        context["seen"].append((r.detach(), attention.detach()))
    t = attention @ values
    if positions["kind"] == "shaw":
        t = t + torch.einsum("bnce,cek->bnck", attention, weights[name + ".positions.values"][row])
    return t.transpose(1, 2).flatten(2)


def head_norm(x, gain):
    """RMS norm of heads; `gain` is None if the temperature replaces it."""
    normal = x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    return normal if gain is None else normal * gain


def scored_form(weights, name, options, form):
    """The form of every head, [n, k, k], in scores: with its fixed norm, times the temperature."""
    if options.get("fixed_norm"):
        form = form * math.sqrt(form.shape[-1]) / form.square().sum((1, 2), keepdim=True).sqrt()
    return form * weights[name + ".temperature"][:, None, None] if options["learned_temperature"] else form


def pool(x, window, visible, causal):
    """The mean over a window of visible tokens, minus the token; zeros if nothing is visible."""
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


def learned_metric(weights, name, options, n, k):
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


def metric_tensor(weights, name, options, n, k):
    return scored_form(weights, name, options, learned_metric(weights, name, options, n, k))


def published(p, m):
    """r_cc' for c >= c', mirrored; pairs of different features and pairs of different tokens count twice."""
    once = torch.diag_embed(torch.diagonal(m, dim1=1, dim2=2)) + 2 * m.tril(-1)
    r = torch.einsum("bnck,nkj,bnej->bnce", p, once, p)
    below = 2 * r.tril(-1)
    return below + below.transpose(2, 3) + torch.diag_embed(torch.diagonal(r, dim1=2, dim2=3))


def metric_mix(weights, name, options, p, values, context):
    m = metric_tensor(weights, name, options, p.shape[1], p.shape[-1])
    image = torch.einsum("bnck,nkj->bncj", p, m)
    if options["score"] == "as_published":
        return mix(weights, name, torch.zeros_like(p), p, published(p, m), values, context)
    if options["score"] == "bilinear":
        return mix(weights, name, image, p, 0, values, context, m)
    if context["positions"]["kind"] in ("rotary", "shaw", "transformer_xl"):  # these change the part that depends on both tokens
        square = (image * p).sum(-1)
        return mix(weights, name, 2 * image, p, -square.unsqueeze(3) - square.unsqueeze(2), values, context, 2 * m, True)
    difference = p.unsqueeze(3) - p.unsqueeze(2)
    r = -torch.einsum("bncek,nkj,bncej->bnce", difference, m, difference)
    return mix(weights, name, torch.zeros_like(p), p, r, values, context)


def differential(weights, name, x, n, context):
    """Ye et al. (2024): heads 2 p and 2 p + 1 are a pair, which has the values of both."""
    layer = int(name.split(".")[2])
    query, key, value = linear(weights, name + ".query_key_value", x).chunk(3, -1)
    value, k = heads(value, n // 2).repeat_interleave(2, 1), x.shape[-1] // n
    t = mix(weights, name, heads(query, n), heads(key, n), 0, value, context, k=k).unflatten(2, (n // 2, 2, 2 * k))
    initial = 0.8 - 0.6 * math.exp(-0.3 * layer)
    one, other = (torch.exp(weights[f"{name}.lambda_q{i}"] @ weights[f"{name}.lambda_k{i}"]) for i in (1, 2))
    difference = t[:, :, :, 0] - (one - other + initial) * t[:, :, :, 1]
    return linear(weights, name + ".output",
                  (1 - initial) * head_norm(difference, weights[name + ".norm.weight"]).flatten(2))


def mixer(weights, name, options, x, n, context):
    kind = options["kind"]
    if kind == "identity":
        return x
    if kind == "none":
        return torch.zeros_like(x)
    if kind in state_mixers.KINDS:
        return state_mixers.mix(weights, name, options, x, n, context)
    if kind in place_mixers.KINDS:
        return place_mixers.mix(weights, name, options, x, context)
    if kind == "average_pooling":
        return pool(x, options["window"], context["visible"], context["causal"])
    if kind == "scaled_dot_product":
        few = options["key_value_heads"] or n  # number of heads of keys and values
        rows = [t.unflatten(-1, (-1, x.shape[-1] // n)).transpose(1, 2) for t in linear(
            weights, name + ".query_key_value", x).split([x.shape[-1], *[x.shape[-1] // n * few] * 2], -1)]
        q, key, v = (t.repeat_interleave(n // t.shape[1], 1) for t in rows)
        if options["qk_norm"]:
            q, key = (head_norm(x, weights.get(f"{name}.{side}_norm.weight")) for side, x in (("query", q), ("key", key)))
        form = None
        if options["learned_temperature"]:
            form = scored_form(weights, name, options, torch.eye(q.shape[-1], dtype=torch.float64).repeat(n, 1, 1))
            q = torch.einsum("bnck,nkj->bncj", q, form)
        return linear(weights, name + ".output", mix(weights, name, q, key, 0, v, context, form, options=options))
    if kind == "differential":
        return differential(weights, name, x, n, context)
    parts = [heads(t, n) for t in linear(weights, name + ".projection", x).split(x.shape[-1], -1)]
    p, v = parts[0], parts[-1]
    if kind == "lsh":
        t = lsh.attend(p, v, lsh.buckets(p, options, context["context"]), context["segments"], options, context["causal"])
        return linear(weights, name + ".output", t.transpose(1, 2).flatten(2))
    if options["qk_norm"]:
        p = head_norm(p, weights.get(name + ".norm.weight"))
        v = p if options["values"] == "shared" else v
    if kind == "metric":
        t = metric_mix(weights, name, options, p, v, context)
    elif options["form"] == "full":
        t = mix(weights, name, torch.einsum("bcd,nde->bnce", x, weights[name + ".full_form"]),
                x.unsqueeze(1).expand(-1, n, -1, -1), 0, v, context, weights[name + ".full_form"])
    else:
        form = scored_form(weights, name, options, weights[name + ".form"])
        t = mix(weights, name, torch.einsum("bnck,nkj->bncj", p, form), p, 0, v, context, form)
    return linear(weights, name + ".output", t)


def activation(options, x):
    return {
        "gelu": lambda: F.gelu(x),
        "gelu_tanh": lambda: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
        "relu": lambda: x.clamp(min=0),
        "silu": lambda: x / (1 + torch.exp(-options["beta"] * x)),
        "relu_squared": lambda: x.clamp(min=0) ** 2,
    }[options["kind"]]()


def mixer_of(options, layer):
    """The mixer of a layer; the mixers of a list take turns."""
    if not isinstance(options, list):
        return options
    turn = [item["mixer"] for item in options for _ in range(item["layers"])]
    return turn[layer % len(turn)]


def with_convolution(weights, name, x, context):
    """The input of a mixer, with the short convolution of its block if there is one."""
    if (filters := weights.get(name + ".filter")) is None:
        return x

    def convolved(x, segments):
        size, y = filters.shape[1], 0
        for j in range(size):
            moved = F.pad(x, (0, 0, j, 0))[:, :x.shape[1]]
            other = F.pad(segments, (j, 0), value=-2)[:, :x.shape[1]]
            y = y + moved * ((other == segments) | (j == 0))[..., None] * filters[:, size - 1 - j]
        return y

    y = x + convolved(x, context["segments"])
    return y if context["causal"] else y + convolved(x.flip(1), context["segments"].flip(1)).flip(1)


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


def positions_of(weights, options, c, d):
    """The positions that are added to the embeddings, [c, d], or 0."""
    if options["kind"] == "learned":
        return weights["transformer.position_embedding.weight"][:c]
    if options["kind"] == "sinusoidal":
        feature = torch.arange(d, dtype=torch.float64)
        angle = torch.outer(torch.arange(c, dtype=torch.float64), options["base"] ** (-2 * (feature // 2) / d))
        return torch.where(feature % 2 == 0, angle.sin(), angle.cos())
    return 0


def embedding_factor(model):
    return math.sqrt(model["width"]) if model["embedding"]["scale"] == "sqrt_width" else 1


def trunk(config, weights, ids, segments, causal, seen=None):
    model, name = config["model"], "transformer."
    c, n, positions = ids.shape[1], model["heads"], model["positions"]
    visible = (segments[:, :, None] == segments[:, None, :]) & (segments >= 0)[:, :, None]
    if causal:
        visible = visible & torch.ones(c, c, dtype=torch.bool).tril()
    context = {"visible": visible, "causal": causal, "positions": positions, "seen": seen, "segments": segments,
               "context": model["context"] + (config["task"].get("head", {}).get("kind") == "first_token"),
               "bias": score_bias(weights, positions, n, c, causal)}
    region = model["embedding"]["region"]
    x = weights[name + "token_embedding.weight"][ids] if region["kind"] == "none" else regions.embedded(weights, region, ids)
    x = embedding_factor(model) * x + positions_of(weights, positions, c, model["width"])
    for layer in range(model["layers"]):
        block = f"{name}blocks.{layer}."
        x = apply_branch(weights, block + "mixer", model,
                         lambda y: mixer(weights, block + "mixer", mixer_of(model["mixer"], layer),
                                         with_convolution(weights, block + "convolution", y, context), n, context), x)
        if model["feed_forward"]["kind"] != "none":
            x = apply_branch(
                weights, block + "feed_forward", model,
                lambda y: feed_forward(weights, block + "feed_forward", model["feed_forward"], y), x)
    return x if model["norm"]["position"] == "post" or model["layers"] == 0 else norm(weights, name + "final_norm", model["norm"], x)


def forward(config, weights, ids, seen=None):
    x = trunk(config, weights, ids, torch.zeros_like(ids), causal=True, seen=seen)
    table = "transformer.token_embedding.weight" if config["model"]["embedding"]["tie"] else "head.weight"
    return x @ weights[table].T


def unmask(config, weights, ids, segments, seen=None):
    x = trunk(config, weights, ids, segments, causal=False, seen=seen)
    tied = config["model"]["embedding"]["tie"]
    return x @ (weights["transformer.token_embedding.weight"][:-1] if tied else weights["head.weight"]).T


def vocabulary_of(config, weights):
    region = config["model"]["embedding"]["region"]
    if region["kind"] == "none":
        return len(weights["transformer.token_embedding.weight"])
    size = region["longest"]
    return len(weights[f"transformer.region_embedding.{size}.weight"]) // size


def classify(config, weights, ids, segments, seen=None):
    head = config["task"]["head"]["kind"]
    if head == "first_token":
        class_token = torch.full_like(ids[:, :1], vocabulary_of(config, weights) - 1)
        ids, segments = torch.cat((class_token, ids), 1), torch.cat((torch.zeros_like(class_token), segments), 1)
    x = trunk(config, weights, ids, segments, causal=False, seen=seen)
    real = (segments >= 0).unsqueeze(2).to(x.dtype)

    def mean(y):
        return (y * real).sum(1) / real.sum(1)

    if head == "per_token_mean":
        return mean(linear(weights, "head", x))
    if head == "mean_pooled":
        return linear(weights, "head", norm(weights, "pooled_norm", config["model"]["norm"], mean(x)))
    if head == "max_pooled":
        return linear(weights, "head", regions.pooled_features(config, weights, x, ids, segments))
    return linear(weights, "head", x[:, 0])


def recurrent(config, weights, ids):
    model = config["model"]
    kind, d, table = model["kind"], model["width"], weights["token_embedding.weight"]
    layers = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](d, d, model["layers"], batch_first=True)
    for name in list(layers._parameters):
        del layers._parameters[name]  # replaced by our tensor, which gets the gradient
        setattr(layers, name, weights[f"{kind}.{name}"])
    x, _ = layers(table[ids] * embedding_factor(model))
    return x @ (table if model["embedding"]["tie"] else weights["head.weight"]).T


def feed_forward_model(config, weights, ids):
    """b + U tanh(d + H x), where head.weight is U."""
    model, table = config["model"], weights["token_embedding.weight"]
    before = weights["padding_embedding.weight"].expand(len(ids), model["window"] - 1, -1)
    x = torch.cat((before, table[ids]), 1) * embedding_factor(model)
    x = torch.cat([x[:, i:i + ids.shape[1]] for i in range(model["window"])], -1)
    hidden = torch.tanh(linear(weights, "hidden_layer", x))
    return F.linear(hidden, table if model["embedding"]["tie"] else weights["head.weight"], weights["head.bias"])
