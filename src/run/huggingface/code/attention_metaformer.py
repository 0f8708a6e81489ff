# Copyright (c) 2026 the metaformer authors. Licence: MIT (https://opensource.org/license/mit).
"""The mixers of metaformer with scores, their positions, and LSH attention, in plain PyTorch.

A mixer maps tokens x, [b, c, d] (batch, tokens, width), to as many vectors; no token sees a later one. Vectors of heads are
[b, n, c, k]. With model.memory a mixer reads tokens before x, too: `context`, [b, e, d], ends with x.

`options` are those of the mixer, `model` those of the section `model` (metaformer config explain model), `layer` is the number
of the block, and `shared` has the values that the blocks of a pass share.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn


def rounded(x):
    """The nearest integer; halves are rounded up."""
    return math.floor(x + 0.5)


def multiple_of_8(x):
    return 8 * max(1, rounded(x / 8))


def parameter(*sizes):
    """A parameter that a checkpoint will fill."""
    return nn.Parameter(torch.zeros(sizes))


def wide(x):
    """x in float32, unless it is float64."""
    return x if x.dtype == torch.float64 else x.float()


def split_heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).flatten(2)


def offsets(queries, keys, device):
    """The place of each key minus that of each query, [c, e]; the queries are the last of the keys."""
    return torch.arange(keys, device=device) - torch.arange(keys - queries, keys, device=device)[:, None]


def rms_norm(x, weight, epsilon):
    y = wide(x)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + epsilon)
    return (y if weight is None else y * weight).to(x.dtype)


class HeadNorm(nn.Module):
    """RMS normalisation of the vectors of every head; without a learned gain the gain is 1."""

    def __init__(self, width, learned_gain=True):
        super().__init__()
        self.weight = parameter(width) if learned_gain else None

    def forward(self, x):
        return rms_norm(x, self.weight, 1e-6)


# Positions in scores


def rotated(x, options, tokens):
    """Rotary positions (Su et al. 2021): features l and l + pairs of each head are rotated by an angle of place base^(-l / pairs).
    x are the last of `tokens` tokens."""
    pairs = int(options.fraction * x.shape[-1]) // 2
    places = torch.arange(tokens - x.shape[2], tokens, dtype=torch.float64, device=x.device)
    frequencies = options.base ** (-torch.arange(pairs, dtype=torch.float64, device=x.device) / pairs)
    angle = torch.outer(places, frequencies)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second, rest = x.split((pairs, pairs, x.shape[-1] - 2 * pairs), -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)


class AlibiBias(nn.Module):
    """ALiBi (Press et al. 2022): the scores of a head fall by its slope with every token of distance."""

    def __init__(self, model):
        super().__init__()
        self.register_buffer("slopes", torch.zeros(model.heads, 1, 1))

    def forward(self, offset):
        return -self.slopes * offset.abs()


class T5Bias(nn.Module):
    """T5 (Raffel et al. 2020): a learned number for every head and bucket of distances. Half of the buckets have one distance
    each, the others grow logarithmically up to max_distance."""

    def __init__(self, model):
        super().__init__()
        self.buckets, self.max_distance = model.positions.buckets, model.positions.max_distance
        self.weight = parameter(self.buckets, model.heads)

    def forward(self, offset):
        distance, exact = (-offset).clamp(min=0), self.buckets // 2
        span = math.log(self.max_distance / exact)
        beyond = torch.log(distance.clamp(min=1).float() / exact) / span * (self.buckets - exact)
        far = (exact + beyond.long()).clamp(max=self.buckets - 1)
        return self.weight[torch.where(distance < exact, distance, far)].permute(2, 0, 1)


class ShawPositions(nn.Module):
    """Shaw et al. 2018: vectors of the distances, clipped to max_distance, are added to keys and values."""

    def __init__(self, model, key_width, value_width):
        super().__init__()
        self.longest = model.positions.max_distance
        self.keys = parameter(2 * self.longest + 1, key_width)
        self.values = parameter(2 * self.longest + 1, value_width)

    def rows(self, offset):
        return offset.clamp(-self.longest, self.longest) + self.longest

    def scores(self, queries, offset):
        return (queries @ self.keys.mT).gather(3, self.rows(offset).expand(*queries.shape[:2], -1, -1))

    def mixed(self, weights, offset):
        of_rows = weights.new_zeros(*weights.shape[:3], len(self.values))
        return of_rows.scatter_add(3, self.rows(offset).expand_as(weights), weights) @ self.values


class DistanceBiases(nn.Module):
    """The vectors u and v of Transformer-XL."""

    def __init__(self, heads, key_width):
        super().__init__()
        self.content, self.distance = parameter(heads, key_width), parameter(heads, key_width)


class TransformerXlPositions(nn.Module):
    """Transformer-XL (Dai et al. 2019, section 3.3): scores (q + u) k + (q + v) W R, where R are sinusoids of the distance."""

    def __init__(self, model, key_width):
        super().__init__()
        self.model = model
        self.projection = nn.Linear(model.width, model.heads * key_width, bias=False)
        self.biases = None if model.positions.shared_biases else DistanceBiases(model.heads, key_width)

    def distances(self, tokens):
        """W R of the distances from tokens - 1 down to 0, [n, e, k]."""
        weight, width, longest = self.projection.weight, self.model.width, self.model.positions.clamp_length
        distance = torch.arange(tokens - 1, -1, -1, dtype=torch.float64, device=weight.device)
        if longest > 0:
            distance = distance.clamp(max=longest)
        frequency = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=weight.device) / width)
        angle = torch.outer(distance, frequency)
        encoded = F.dropout(torch.cat((angle.sin(), angle.cos()), -1).to(weight.dtype), self.model.dropout, self.training)
        return self.projection(encoded).unflatten(-1, (self.model.heads, -1)).transpose(0, 1)


def by_offset(of_distance, offset):
    """Scores by distance, [b, n, c, distance from the longest to 0], as scores of pairs, [b, n, c, e]."""
    column = (of_distance.shape[-1] - 1 + offset).clamp(0, of_distance.shape[-1] - 1)
    return of_distance.gather(3, column.expand(*of_distance.shape[:2], -1, -1))


# Mixers with scores


class ScoreMixer(nn.Module):
    """softmax(scores / sqrt(k)) values over the tokens up to the query. Subclasses define the scores."""

    def __init__(self, model, key_width, value_width, window=0):
        super().__init__()
        self.model, self.window = model, window
        self.positions = None
        if model.positions.kind == "shaw":
            self.positions = ShawPositions(model, key_width, value_width)
        if model.positions.kind == "transformer_xl":
            self.positions = TransformerXlPositions(model, key_width)

    def compared(self, left):
        """The queries, from the vectors on their side."""
        return left

    def key_terms(self, keys):
        """A term of the scores that depends on the key only, [..., keys], or 0."""
        return 0

    def products(self, queries, keys, offset):
        return queries @ keys.mT

    def weights(self, scores):
        return torch.softmax(scores, -1)

    def scores(self, left, keys, offset, shared):
        kind, tokens = self.model.positions.kind, keys.shape[2]
        terms = self.key_terms(keys)
        if kind == "transformer_xl":
            biases = self.positions.biases or shared.distance_biases
            distances = self.positions.distances(tokens)
            of_distance = self.compared(left + biases.distance[:, None]) @ distances.mT
            terms = terms + by_offset(of_distance + self.key_terms(distances[None]), offset)
            left = left + biases.content[:, None]
        queries = self.compared(left)
        if kind == "shaw":
            terms = terms + self.positions.scores(queries, offset)
        if kind == "rotary":
            queries, keys = (rotated(x, self.model.positions, tokens) for x in (queries, keys))
        return self.products(queries, keys, offset) + terms

    def attend(self, left, keys, values, shared):
        """The mixed values, [b, n, c, values]. A head of keys or values may serve several heads of `left`."""
        keys, values = (x.repeat_interleave(left.shape[1] // x.shape[1], 1) for x in (keys, values))
        offset = offsets(left.shape[2], keys.shape[2], left.device)
        scores = wide(self.scores(left, keys, offset, shared)) / math.sqrt(self.model.width // self.model.heads)
        if shared.score_bias is not None:
            scores = scores + shared.score_bias(offset)
        hidden = offset > 0
        for window in (self.window, shared.window):
            if window > 0:
                hidden = hidden | (offset <= -window)
        weights = self.weights(scores.masked_fill(hidden, -math.inf))
        weights = F.dropout(weights, self.model.dropout, self.training).to(values.dtype)
        mixed = weights @ values
        return mixed + self.positions.mixed(weights, offset) if self.model.positions.kind == "shaw" else mixed


class ScaledDotProduct(ScoreMixer):
    """softmax(q k' / sqrt(k)) v (Vaswani et al. 2017). Options: normalised queries and keys, a window, fewer heads of keys and
    values, a learned score of a token whose value is 0 (sinks), and weights sigmoid(s - log n) over n tokens."""

    def __init__(self, options, model, layer):
        width = model.width // model.heads
        super().__init__(model, width, width, options.window)
        self.options = options
        self.key_heads = options.key_value_heads or model.heads
        self.query_key_value = nn.Linear(model.width, model.width + 2 * self.key_heads * width, model.bias)
        self.output = nn.Linear(model.width, model.width, model.bias)
        self.temperature = parameter(model.heads) if options.learned_temperature else None
        self.sinks = parameter(model.heads) if options.sinks else None
        if options.qk_norm:
            self.query_norm = HeadNorm(width, not options.learned_temperature)
            self.key_norm = HeadNorm(width, not options.learned_temperature)

    def compared(self, left):
        return left if self.temperature is None else left * self.temperature[:, None, None]

    def weights(self, scores):
        if self.options.weights == "sigmoid":
            return torch.sigmoid(scores - torch.log((scores > -math.inf).sum(-1, keepdim=True).to(scores.dtype)))
        if self.sinks is None:
            return torch.softmax(scores, -1)
        sinks = self.sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
        return torch.softmax(torch.cat((scores, sinks), -1), -1)[..., :-1]

    def forward(self, x, context, shared):
        heads, keys = self.model.heads, self.query_key_value.out_features - self.model.width
        q, k, v = self.query_key_value(context).split((self.model.width, keys // 2, keys // 2), -1)
        q, k, v = split_heads(q[:, -x.shape[1]:], heads), split_heads(k, self.key_heads), split_heads(v, self.key_heads)
        if self.options.qk_norm:
            q, k = self.query_norm(q), self.key_norm(k)
        return self.output(merge_heads(self.attend(q, k, v, shared)))


class Differential(ScoreMixer):
    """The difference of two softmaxes for each pair of heads, norm((A_1 - lambda A_2) V) (1 - lambda_init) (Ye et al. 2024)."""

    def __init__(self, options, model, layer):
        width = model.width // model.heads
        super().__init__(model, width, 2 * width)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.query_key_value = nn.Linear(model.width, 3 * model.width, model.bias)
        self.norm = HeadNorm(2 * width)
        self.output = nn.Linear(model.width, model.width, model.bias)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (parameter(width) for _ in range(4))

    def forward(self, x, context, shared):
        heads = self.model.heads
        q, k, v = self.query_key_value(context).chunk(3, -1)
        q, k, v = split_heads(q[:, -x.shape[1]:], heads), split_heads(k, heads), split_heads(v, heads // 2)
        first, second = self.attend(q, k, v, shared).unflatten(1, (-1, 2)).unbind(2)
        of_first, of_second = (self.lambda_q1 * self.lambda_k1).sum().exp(), (self.lambda_q2 * self.lambda_k2).sum().exp()
        difference = first - (of_first - of_second + self.lambda_init) * second
        return self.output(merge_heads(self.norm(difference) * (1 - self.lambda_init)))


class FormMixer(ScoreMixer):
    """Scores p F p' of one projection p, with a form F for each head. The values are p, p before its norm (unnormalised), or
    another projection (own)."""

    def __init__(self, options, model, key_width):
        width = model.width // model.heads
        super().__init__(model, key_width, width)
        self.options = options
        self.projection = nn.Linear(model.width, model.width * (2 if options.values == "own" else 1), model.bias)
        self.temperature = parameter(model.heads) if options.learned_temperature else None
        self.norm = HeadNorm(width, not options.learned_temperature) if options.qk_norm else None
        self.output = nn.Linear(model.width, model.width, model.bias)

    def learned_form(self):
        """[n, k, k]."""
        raise NotImplementedError

    def finished_form(self):
        form = self.learned_form()
        if self.options.fixed_norm:  # the Frobenius norm of the identity
            form = form * (math.sqrt(form.shape[-1]) / form.norm(dim=(1, 2), keepdim=True))
        return form if self.temperature is None else form * self.temperature[:, None, None]

    def compared(self, left):
        return left @ self.finished_form()

    def sides(self, x, context, projected):
        """The vectors on the side of the queries, and the keys."""
        return projected[:, :, -x.shape[1]:], projected

    def forward(self, x, context, shared):
        parts = [split_heads(part, self.model.heads) for part in self.projection(context).split(self.model.width, -1)]
        projected = parts[0] if self.norm is None else self.norm(parts[0])
        values = {"shared": projected, "unnormalised": parts[0], "own": parts[-1]}[self.options.values]
        left, keys = self.sides(x, context, projected)
        return self.output(merge_heads(self.attend(left, keys, values, shared)))


class Quadratic(FormMixer):
    """Scores p W p' with a free form W, or x U x' of the inputs (form: full)."""

    def __init__(self, options, model, layer):
        full = options.form == "full"
        width = model.width if full else model.width // model.heads
        super().__init__(options, model, width)
        self.full = full
        setattr(self, "full_form" if full else "form", parameter(model.heads, width, width))

    def learned_form(self):
        return self.full_form if self.full else self.form

    def sides(self, x, context, projected):
        if not self.full:
            return super().sides(x, context, projected)
        return x[:, None].expand(-1, self.model.heads, -1, -1), context[:, None].expand(-1, self.model.heads, -1, -1)


class Metric(FormMixer):
    """Scores p M p' with a metric tensor M: symmetric, psd (L L'), diagonal, or the identity. With score: distance they are
    -(p - p') M (p - p'), without the term of the query, which a softmax cancels; as_published counts pairs twice."""

    def __init__(self, options, model, layer):
        super().__init__(options, model, model.width // model.heads)
        self.width = model.width // model.heads
        self.is_distance, self.is_published = options.score == "distance", options.score == "as_published"
        triangle = (model.heads, self.width * (self.width + 1) // 2)
        if options.constraint == "symmetric":
            self.packed_metric = parameter(*triangle)
        elif options.constraint == "psd":
            self.packed_factor = parameter(*triangle)
        elif options.constraint == "diagonal":
            self.diagonal_metric = parameter(model.heads, self.width)

    def unpacked(self, packed):
        """Lower triangles, from their rows one after the other."""
        rows, columns = torch.tril_indices(self.width, self.width, device=packed.device)
        full = packed.new_zeros(len(packed), self.width, self.width)
        full[:, rows, columns] = packed
        return full

    def learned_form(self):
        constraint = self.options.constraint
        if constraint == "symmetric":
            lower = self.unpacked(self.packed_metric)
            return lower + lower.tril(-1).mT
        if constraint == "psd":
            factor = self.unpacked(self.packed_factor)
            return factor @ factor.mT
        if constraint == "diagonal":
            return torch.diag_embed(F.softplus(self.diagonal_metric) if self.is_distance else self.diagonal_metric)
        weight = self.output.weight
        return torch.eye(self.width, dtype=weight.dtype, device=weight.device).expand(self.model.heads, -1, -1)

    def compared(self, left):
        form = self.finished_form()
        if self.is_published:
            form = form.tril() + form.tril(-1)
        return left @ (2 * form if self.is_distance else form)

    def key_terms(self, keys):
        return -((keys @ self.finished_form()) * keys).sum(-1)[..., None, :] if self.is_distance else 0

    def products(self, queries, keys, offset):
        products = queries @ keys.mT
        return torch.where(offset == 0, products, 2 * products) if self.is_published else products


class Lsh(nn.Module):
    """LSH attention (Kitaev, Kaiser and Levskaya 2020, section 2): scores q_i . q_j / |q_j|. In each round the tokens are sorted
    by a hash of q, and a token sees its chunk of the sorted tokens and the chunk before, but not itself."""

    def __init__(self, options, model, layer):
        super().__init__()
        self.options, self.model = options, model
        self.projection = nn.Linear(model.width, 2 * model.width, model.bias)
        self.output = nn.Linear(model.width, model.width, model.bias)

    def rotations(self, heads, width, device):
        """Normal numbers (Box and Muller 1958) from uniform ones, which are functions of a counter (splitmix64)."""
        def mixed(x):
            def shifted(x, places):  # to the right, with zeros
                return (x >> places) & ((1 << (64 - places)) - 1)
            x = x + (0x9e3779b97f4a7c15 - 2**64)
            x = (x ^ shifted(x, 30)) * (0xbf58476d1ce4e5b9 - 2**64)
            x = (x ^ shifted(x, 27)) * (0x94d049bb133111eb - 2**64)
            return x ^ shifted(x, 31)

        context, chunk, buckets = self.model.context, self.options.chunk, self.options.buckets
        if buckets == "auto":
            buckets = max(2, 2 * context // chunk + (2 * context // chunk) % 2)
        sizes = (heads, width, self.options.rounds, int(buckets) // 2)
        seed = mixed(mixed(torch.zeros(1, dtype=torch.int64, device=device)))
        counter = torch.arange(2 * math.prod(sizes), device=device).view(-1, 2)
        bits = mixed(seed ^ mixed(counter))
        uniform = ((bits >> 11) & ((1 << 53) - 1)).double() * 2.0**-53
        normal = torch.sqrt(-2 * torch.log1p(-uniform[:, 0])) * torch.cos(2 * math.pi * uniform[:, 1])
        return normal.float().view(sizes)

    def buckets(self, q):
        """The hash of every token, [b, n, rounds, c]: the largest of the rotated features and their negatives."""
        rotations = self.rotations(q.shape[1], q.shape[3], q.device).to(wide(q).dtype)
        products = torch.einsum("bnck,nkri->bnrci", wide(q), rotations)
        return torch.cat((products, -products), -1).argmax(-1)

    def counts(self, q):
        """How often each token sees another in all rounds, [b, n, c, c]."""
        tokens, chunk, rounds = q.shape[2], self.options.chunk, self.options.rounds
        earlier = offsets(tokens, tokens, q.device) < 0
        if tokens <= chunk:
            return earlier.to(q.dtype)
        bucket = self.buckets(q)
        place = bucket.argsort(dim=-1, stable=True).argsort(dim=-1)
        chunks = -(-tokens // chunk)  # of a round; the last one may not be full
        number = place // chunk + chunks * torch.arange(rounds, device=q.device)[:, None]
        count = q.new_zeros(*q.shape[:2], tokens, tokens)
        for query_round in range(rounds):
            for key_round in {query_round, (query_round - 1) % rounds}:
                back = (number[:, :, query_round, :, None] - number[:, :, key_round, None, :]) % (rounds * chunks)
                seen = (back <= 1) & earlier
                if self.options.visible == "bucket":
                    same = bucket[:, :, query_round, :, None] == bucket[:, :, key_round, None, :]
                    seen = seen & same if query_round == key_round else torch.zeros_like(seen)
                count = count + seen
        return count

    def attend(self, q, value):
        count = self.counts(q)
        alone = count.sum(-1) == 0  # such a token gets its own value
        count = count + torch.diag_embed(alone.to(count.dtype))
        scores = wide(q @ F.normalize(q, dim=-1, eps=1e-12).mT)
        if self.options.correct_duplicates:
            count = (count > 0).to(count.dtype)
        weights = torch.softmax(scores + torch.log(wide(count)), -1)
        return F.dropout(weights, self.model.dropout, self.training).to(value.dtype) @ value

    def forward(self, x, context, shared):
        q, value = (split_heads(part, self.model.heads) for part in self.projection(x).chunk(2, -1))
        mixed = torch.zeros_like(value)
        for row, length in enumerate(shared.lengths):  # tokens behind a text would change its chunks
            mixed[row, :, :length] = self.attend(q[row:row + 1, :, :length], value[row:row + 1, :, :length])[0]
        return self.output(merge_heads(mixed))
