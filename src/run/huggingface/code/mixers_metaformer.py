# Copyright (c) 2026 the metaformer authors. Licence: MIT (https://opensource.org/license/mit).
"""The mixers of metaformer without scores, in plain PyTorch, and the table of all mixers. attention_metaformer.py explains their
arguments.
"""
import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from .attention_metaformer import (Differential, HeadNorm, Lsh, Metric, Quadratic, ScaledDotProduct, merge_heads,
                                   multiple_of_8, offsets, parameter, rms_norm, rotated, rounded, split_heads, wide)


# Mixers with a state


def convolve(x, filters, bias=None, silu=False):
    """A causal convolution for every feature, and SiLU. The last column of a filter belongs to the token itself."""
    if filters is not None:
        padded = F.pad(x.mT, (filters.shape[1] - 1, 0))
        x = F.conv1d(padded, filters[:, None], bias, groups=len(filters)).mT
    return F.silu(x) if silu else x


def mix_states(q, k, value, log_decay=None, a=None, b=None, chunk=64):
    """The recurrence of a state S for every head, with w = exp(log_decay) for each feature of the keys, or one for all:

      S_t = S_(t-1) (diag(w_t) + a_t b_t') + value_t k_t',   o_t = S_t q_t

    in chunks of tokens. In a chunk S_(t-1) a_t is the solution of triangular equations. `state` is S', [b, n, k, v]."""
    state = value.new_zeros(*value.shape[:2], k.shape[3], value.shape[3])
    log_decay = torch.zeros_like(k[..., :1]) if log_decay is None else log_decay
    outputs = []

    def products(left, left_log, right, right_log):
        """sum over features of left_t right_s exp(left_log_t - right_log_s), for s <= t."""
        exponent = (left_log.unsqueeze(3) - right_log.unsqueeze(2)).clamp(max=0)
        if exponent.shape[-1] == 1:
            return left @ right.mT * exponent.squeeze(-1).exp()
        return torch.einsum("bntk,bnsk,bntsk->bnts", left, right, exponent.exp())

    for first in range(0, q.shape[2], chunk):
        q_now, k_now, value_now, decay_now = (x[:, :, first:first + chunk] for x in (q, k, value, log_decay))
        kept = decay_now.cumsum(2)  # the logarithm of the decay from before the chunk to each token
        rest = kept[:, :, -1:] - kept
        output = products(q_now, kept, k_now, kept).tril() @ value_now + (q_now * kept.exp()) @ state
        written = (k_now * rest.exp()).mT @ value_now
        if a is not None:
            a_now, b_now = a[:, :, first:first + chunk], b[:, :, first:first + chunk]
            before = kept - decay_now
            right = products(a_now, before, k_now, kept).tril(-1) @ value_now + (a_now * before.exp()) @ state
            matrix = -products(a_now, before, b_now, kept).tril(-1)
            read = torch.linalg.solve_triangular(matrix, right, upper=False, unitriangular=True)
            output = output + products(q_now, kept, b_now, kept).tril() @ read
            written = written + (b_now * rest.exp()).mT @ read
        state = state * kept[:, :, -1:].exp().mT + written
        outputs.append(output)
    return torch.cat(outputs, 2)


def with_length(length, x):
    """x as a vector of this length; 0 stays 0."""
    x = wide(x)
    return length * x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


class Convolved(nn.Module):
    """A projection with a short convolution of `size` tokens (0: none)."""

    def __init__(self, model, features, size):
        super().__init__()
        self.projection = nn.Linear(model.width, features, model.bias)
        self.filter = parameter(features, size) if size > 0 else None

    def forward(self, x, bias=None, silu=False):
        return convolve(self.projection(x), self.filter, bias, silu)


class StateMixer(nn.Module):
    """y = W_o read(x)."""

    def __init__(self, model, values):
        super().__init__()
        self.model = model
        self.output = nn.Linear(values, model.width, model.bias)

    def of_heads(self, x):
        return wide(split_heads(x, self.model.heads))

    def forward(self, x, context, shared):
        return self.output(self.read(x, shared).to(x.dtype))


class LinearAttention(StateMixer):
    """y_t = sum_s f(q_t).f(k_s) v_s / sum_s f(q_t).f(k_s), where f(x) = elu(x) + 1 (Katharopoulos et al. 2020), or f(q).f(k) =
    1 + s + s^2 / 2 with s = q.k / sqrt(k) (taylor, Arora et al. 2024)."""

    def __init__(self, options, model, layer):
        super().__init__(model, model.width)
        self.taylor = options.features == "taylor"
        features = model.heads * options.feature_width if self.taylor else model.width
        self.query = Convolved(model, features, options.convolution)
        self.key = Convolved(model, features, options.convolution)
        self.value = Convolved(model, model.width, options.convolution)

    def features(self, x):
        if not self.taylor:
            return F.elu(x) + 1
        x = x * x.shape[-1] ** -0.25
        squares = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2) * math.sqrt(0.5)
        return torch.cat((torch.ones_like(x[..., :1]), x, squares), -1)

    def read(self, x, shared):
        q, k = self.features(self.of_heads(self.query(x))), self.features(self.of_heads(self.key(x)))
        mixed = mix_states(q, k, F.pad(self.of_heads(self.value(x)), (0, 1), value=1.0))
        return merge_heads(mixed[..., :-1] / mixed[..., -1:])


class Retention(StateMixer):
    """RetNet (Sun et al. 2023): head h decays by 1 - 2^(-5 - h) per token, q and k are rotated by their places, and
    y = W_o (norm(o) * silu(W_g x)), o_t = sum_s decay^(t - s) q_t.k_s v_s / sqrt(k)."""

    def __init__(self, options, model, layer):
        super().__init__(model, model.width)
        self.query, self.key, self.value = (Convolved(model, model.width, options.convolution) for _ in range(3))
        self.gate = nn.Linear(model.width, model.width, model.bias)
        self.norm = HeadNorm(model.width // model.heads)

    def read(self, x, shared):
        q, k, value = (self.of_heads(part(x)) for part in (self.query, self.key, self.value))
        angles = SimpleNamespace(base=1e4, fraction=1)
        q, k = rotated(q, angles, q.shape[2]) / math.sqrt(q.shape[3]), rotated(k, angles, k.shape[2])
        heads = torch.arange(self.model.heads, dtype=torch.float64, device=x.device)
        log_decay = torch.log1p(-torch.exp2(-5 - heads)).to(q.dtype)[:, None, None].expand(*q.shape[:3], 1)
        return merge_heads(self.norm(mix_states(q, k, value, log_decay))) * F.silu(self.gate(x))


class GatedLinearAttention(StateMixer):
    """GLA (Yang et al. 2024): the state decays by sigmoid(x W_1 W_2 + b)^(1/16) for every feature of the keys, which have half
    the width, and y = W_o (norm(S q / sqrt(k)) * silu(W_g x))."""

    def __init__(self, options, model, layer):
        super().__init__(model, model.width)
        self.query = Convolved(model, model.width // 2, options.convolution)
        self.key = Convolved(model, model.width // 2, options.convolution)
        self.value = Convolved(model, model.width, options.convolution)
        self.gate = nn.Linear(model.width, model.width, model.bias)
        self.decay_in = nn.Linear(model.width, options.rank, bias=False)
        self.decay_out = nn.Linear(options.rank, model.width // 2)
        self.norm = HeadNorm(model.width // model.heads)

    def read(self, x, shared):
        q, k, value = (self.of_heads(part(x)) for part in (self.query, self.key, self.value))
        log_decay = F.logsigmoid(self.of_heads(self.decay_out(self.decay_in(x)))) / 16
        return merge_heads(self.norm(mix_states(q / math.sqrt(q.shape[3]), k, value, log_decay))) * F.silu(self.gate(x))


class Mamba2(StateMixer):
    """Mamba-2 (Dao and Gu 2024): S_t = exp(-step_t exp(A_log)) S_(t-1) + step_t x_t B_t', y = W_o norm((S C + D x) * silu(z)).
    All heads share B and C."""

    def __init__(self, options, model, layer):
        width = options.expand * model.width
        super().__init__(model, width)
        self.value = Convolved(model, width, options.convolution)
        self.key_query = Convolved(model, 2 * options.state, options.convolution)
        self.gate = nn.Linear(model.width, width, model.bias)
        self.step = nn.Linear(model.width, model.heads, bias=False)
        self.value_bias = parameter(width) if options.convolution > 0 else None
        self.key_query_bias = parameter(2 * options.state) if options.convolution > 0 else None
        self.step_bias, self.log_rate, self.skip = (parameter(model.heads) for _ in range(3))
        self.norm = parameter(width)

    def read(self, x, shared):
        value = self.of_heads(self.value(x, self.value_bias, silu=True))
        k, q = (part.unsqueeze(1).expand(-1, self.model.heads, -1, -1)
                for part in wide(self.key_query(x, self.key_query_bias, silu=True)).chunk(2, -1))
        step = F.softplus(wide(self.step(x)) + self.step_bias).mT.unsqueeze(-1)
        mixed = mix_states(q, k, step * value, -step * self.log_rate.exp()[:, None, None])
        y = merge_heads(mixed + self.skip[:, None, None] * value)
        return rms_norm(y * F.silu(wide(self.gate(x))), self.norm, 1e-5)


class DeltaNet(StateMixer):
    """S_t = decay_t S_(t-1) (1 - rate_t k_t k_t') + rate_t v_t k_t' with rate = sigmoid(W_b x); q, k and v pass SiLU, q and k
    have length 1. DeltaNet (Yang et al. 2024) has decay 1 and y = W_o norm(S q / sqrt(k)). Gated DeltaNet (Yang, Kautz and
    Hatamizadeh 2025) has keys of half the width, decay = exp(-exp(A_log) softplus(W_a x + b)), and
    y = W_o (norm(S q / sqrt(k)) * silu(W_g x))."""

    def __init__(self, options, model, layer):
        super().__init__(model, model.width)
        self.gated = options.kind == "gated_delta_net"
        features = model.width // 2 if self.gated else model.width
        self.query, self.key = (Convolved(model, features, options.convolution) for _ in range(2))
        self.value = Convolved(model, model.width, options.convolution)
        self.rate = nn.Linear(model.width, model.heads, bias=False)
        self.norm = HeadNorm(model.width // model.heads)
        if self.gated:
            self.gate = nn.Linear(model.width, model.width, model.bias)
            self.decay = nn.Linear(model.width, model.heads, bias=False)
            self.decay_bias, self.log_rate = parameter(model.heads), parameter(model.heads)

    def read(self, x, shared):
        q, k, value = (self.of_heads(part(x, silu=True)) for part in (self.query, self.key, self.value))
        q, k = with_length(1 / math.sqrt(q.shape[3]), q), with_length(1, k)
        rate = torch.sigmoid(wide(self.rate(x))).mT.unsqueeze(-1)
        if not self.gated:
            return merge_heads(self.norm(mix_states(q, k, rate * value, None, -rate * k, k)))
        log_decay = (-self.log_rate.exp() * F.softplus(wide(self.decay(x)) + self.decay_bias)).mT.unsqueeze(-1)
        mixed = mix_states(q, k, rate * value, log_decay, -rate * log_decay.exp() * k, k)
        return merge_heads(self.norm(mixed)) * F.silu(self.gate(x))


class LowRank(nn.Module):
    """base + f(x W_in) W_out."""

    def __init__(self, width, ranks_of_root, has_base=True):
        super().__init__()
        rank = max(32, 32 * rounded(ranks_of_root * math.sqrt(width) / 32))
        self.register_parameter("in", parameter(rank, width))
        self.out = parameter(width, rank)
        self.base = parameter(width) if has_base else None

    def forward(self, x, f=lambda y: y):
        y = F.linear(f(F.linear(x, self.get_parameter("in"))), self.out)
        return y if self.base is None else wide(y) + self.base


class Rwkv7(StateMixer):
    """The time mix of RWKV-7 (Peng et al. 2025). Its inputs are mixtures of a token and the one before it. u is k * key_direction
    with length 1, and w_k = k (1 + (a - 1) key_share) is written:

      S_t = S_(t-1) (diag(w) - u (u * a)') + v w_k',   y = W_o ((norm(S r) + (r . bonus . w_k) v) * g)

    Later blocks mix their values with those of the first one."""

    def __init__(self, options, model, layer):
        super().__init__(model, model.width)
        width = model.width
        self.mixture = parameter(6, width)
        self.receptance, self.key, self.value = (nn.Linear(width, width, model.bias) for _ in range(3))
        self.decay, self.rate, self.gate = LowRank(width, 2.5), LowRank(width, 2.5), LowRank(width, 5, has_base=False)
        is_first = all(mixer_of(model, before).kind != options.kind for before in range(layer))
        self.first_share = None if is_first else LowRank(width, 1.7)
        self.key_direction, self.key_share, self.bonus = (parameter(width) for _ in range(3))
        self.norm_weight, self.norm_bias = parameter(width), parameter(width)

    def mixed_with_first(self, value, x, shared):
        if self.first_share is None:
            shared.first_value = value
            return value
        return value + (shared.first_value - value) * torch.sigmoid(self.first_share(x))

    def read(self, x, shared):
        def by_head(y):
            return y.view(self.model.heads, 1, -1)

        step = F.pad(x, (0, 0, 1, 0))[:, :-1] - x
        x_r, x_w, x_k, x_v, x_a, x_g = (x + step * share for share in self.mixture)
        r, k = self.of_heads(self.receptance(x_r)), self.of_heads(self.key(x_k))
        log_decay = -math.exp(-0.5) * self.of_heads(torch.sigmoid(self.decay(x_w, torch.tanh)))
        value = self.of_heads(self.mixed_with_first(self.value(x_v), x_v, shared))
        rate, gate = self.of_heads(torch.sigmoid(self.rate(x_a))), self.gate(x_g, torch.sigmoid)
        direction = with_length(1, k * by_head(self.key_direction))
        written = k * (1 + (rate - 1) * by_head(self.key_share))
        mixed = mix_states(r, written, value, log_decay, -direction, direction * rate)
        mixed = F.layer_norm(mixed, mixed.shape[-1:], eps=64e-5) * by_head(self.norm_weight) + by_head(self.norm_bias)
        bonus = (r * by_head(self.bonus) * written).sum(-1, keepdim=True)
        return merge_heads(mixed + bonus * value) * gate


class ShortConvolution(StateMixer):
    """The gated convolution of LFM2 (Liquid AI 2025): [b | c | u] = W_in x, y = W_out (c * convolution(b * u))."""

    def __init__(self, options, model, layer):
        super().__init__(model, model.width)
        self.input = nn.Linear(model.width, 3 * model.width, model.bias)
        self.filter = parameter(model.width, options.convolution)

    def read(self, x, shared):
        b, c, u = self.input(x).chunk(3, -1)
        return c * convolve(b * u, self.filter)


# Other mixers


class Hyena(nn.Module):
    """Hyena (Poli et al. 2023): [x_0 | x_1 | ... | v] = convolution(W_in x); v becomes h_i * (x_i v) + D_i x_i v for each x_i from
    the last to x_1; y = W_out (x_0 v). The filters h_i are outputs of a network for the distance, times a decay."""
    bands = 16

    def __init__(self, options, model, layer):
        super().__init__()
        self.options, self.model = options, model
        hidden, filters = options.filter_width, (options.order - 1) * model.width
        self.input = Convolved(model, (options.order + 1) * model.width, options.convolution)
        self.output = nn.Linear(model.width, model.width, model.bias)
        self.filter_in, self.filter_out = parameter(hidden, 1 + 2 * self.bands), parameter(filters, hidden)
        self.filter_hidden_0, self.filter_hidden_1 = parameter(hidden, hidden), parameter(hidden, hidden)
        self.filter_offset_0, self.filter_offset_1, self.filter_offset_2 = (parameter(hidden) for _ in range(3))
        self.frequency, self.direct = parameter(hidden), parameter(filters)

    def filters(self, tokens):
        """[filters, tokens], of distances 0 ... tokens - 1, computed in float64."""
        exact = {"dtype": torch.float64, "device": self.direct.device}
        distance = torch.arange(tokens, **exact)[:, None]
        time = distance / max(self.model.context - 1, 1)
        angle = distance * (2 * math.pi / self.model.context) * torch.linspace(1e-4, self.bands - 1, self.bands, **exact)
        x = torch.cat((time, angle.cos(), -angle.sin()), 1)
        layers = ((self.filter_in, self.filter_offset_0), (self.filter_hidden_0, self.filter_offset_1),
                  (self.filter_hidden_1, self.filter_offset_2))
        for weight, offset in layers:
            x = torch.sin(self.frequency.double() * F.linear(x, weight.double(), offset.double()))
        # The first feature decays to 1% within 1.5 contexts, the last within 0.3.
        rate = torch.linspace(math.log(100) / 1.5, math.log(100) / 0.3, len(self.filter_out), **exact)
        return (F.linear(x, self.filter_out.double()) * torch.exp(-time * rate)).mT

    def forward(self, x, context, shared):
        *factors, v = self.input(x).split(self.model.width, -1)
        filters = self.filters(x.shape[1]).to(wide(x).dtype).split(self.model.width)
        direct = self.direct.split(self.model.width)
        for i in range(self.options.order - 1, 0, -1):
            z = v * factors[i]
            v = convolve(wide(z), filters[i - 1].flip(1)).to(z.dtype) + z * direct[i - 1]
        return self.output(v * factors[0])


class MeanByPlace(nn.Module):
    """A mean of the visible tokens, whose weights are the softmax of a table with a number for every pair of places. random: one
    table, which is not trained (RandFormer, Yu et al. 2023); static: a learned one for each head (Synthesizer, Tay et al. 2021)."""

    def __init__(self, options, model, layer):
        super().__init__()
        self.table = parameter(model.heads if options.kind == "static" else 1, model.context, model.context)
        self.value = self.output = nn.Identity()
        if options.values == "own":
            self.value, self.output = (nn.Linear(model.width, model.width, model.bias) for _ in range(2))

    def forward(self, x, context, shared):
        tokens = x.shape[1]
        later = offsets(tokens, tokens, x.device) > 0
        weights = torch.softmax(wide(self.table[:, :tokens, :tokens]).masked_fill(later, -math.inf), -1).to(x.dtype)
        return self.output(merge_heads(weights @ split_heads(self.value(x), len(self.table))))


class SpatialGating(nn.Module):
    """gMLP's unit (Liu et al. 2021): [u | v] = gelu(W_in x), y_t = W_out (u_t * (sum_s A_ts norm(v)_s + b_t)) with s <= t."""

    def __init__(self, options, model, layer):
        super().__init__()
        width = multiple_of_8(model.width * options.expand)
        self.input, self.output = nn.Linear(model.width, 2 * width, model.bias), nn.Linear(width, model.width, model.bias)
        self.norm_weight, self.norm_bias = parameter(width), parameter(width)
        self.table, self.offset = parameter(1, model.context, model.context), parameter(model.context)

    def forward(self, x, context, shared):
        tokens = x.shape[1]
        u, v = F.gelu(self.input(x)).chunk(2, -1)
        v = F.layer_norm(v, v.shape[-1:], self.norm_weight, self.norm_bias)
        return self.output(u * (self.table[:, :tokens, :tokens].tril() @ v + self.offset[:tokens, None]))


class AveragePooling(nn.Module):
    """The mean over a window of tokens (or all) up to the token, minus the token (PoolFormer, Yu et al. 2022)."""

    def __init__(self, options, model, layer):
        super().__init__()
        self.window = None if options.window == "all" else int(options.window)

    def forward(self, x, context, shared):
        offset = offsets(x.shape[1], context.shape[1], x.device)
        seen = offset <= 0 if self.window is None else (offset <= 0) & (offset > -self.window)
        seen = seen.to(x.dtype)
        return (seen / seen.sum(-1, keepdim=True)) @ context - x


class Identity(nn.Module):
    """The branch returns its input."""

    def __init__(self, options, model, layer):
        super().__init__()

    def forward(self, x, context, shared):
        return x


class NoMixer(Identity):
    """The branch adds nothing."""

    def forward(self, x, context, shared):
        return torch.zeros_like(x)


MIXERS = {"scaled_dot_product": ScaledDotProduct, "quadratic": Quadratic, "metric": Metric, "lsh": Lsh,
          "differential": Differential, "linear_attention": LinearAttention, "retention": Retention,
          "gated_linear_attention": GatedLinearAttention, "mamba2": Mamba2, "delta_net": DeltaNet, "gated_delta_net": DeltaNet,
          "rwkv7": Rwkv7, "short_convolution": ShortConvolution, "hyena": Hyena, "spatial_gating": SpatialGating,
          "static": MeanByPlace, "random": MeanByPlace, "average_pooling": AveragePooling, "identity": Identity,
          "none": NoMixer}
# Mixers with weights for model.context places.
PLACED = ("hyena", "spatial_gating", "static", "random")


def mixer_of(model, layer):
    """The options of the mixer of a block. A list of mixers is repeated."""
    if not isinstance(model.mixer, list):
        return model.mixer
    mixers = [entry.mixer for entry in model.mixer for _ in range(entry.layers)]
    return mixers[layer % len(mixers)]
