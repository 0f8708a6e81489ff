"""Mixers with a matrix state, token by token from the formulas of their papers, for reference_model.py."""
import math

import torch
import torch.nn.functional as F

KINDS = ("linear_attention", "retention", "gated_linear_attention", "mamba2", "delta_net", "gated_delta_net", "rwkv7",
         "short_convolution")


def linear(weights, name, x):
    return F.linear(x, weights[name + ".weight"], weights.get(name + ".bias"))


def unit(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


class Reader:
    """One direction of a mixer, which computes the output [b, c, values] of every token; segments are separate."""

    def __init__(self, weights, name, options, x, segments, n, first_values):
        self.weights, self.name, self.options, self.x, self.n = weights, name, options, x, n
        self.segments, self.first_values = segments, first_values

    def weight(self, name):
        return self.weights[f"{self.name}.{name}"]

    def heads(self, x):
        return x.unflatten(-1, (self.n, -1))

    def before(self, x, distance):
        """x of the token `distance` places earlier, or 0 if that is in another segment."""
        if distance == 0:
            return x
        moved = F.pad(x, (0, 0, distance, 0))[:, :x.shape[1]]
        other = F.pad(self.segments, (distance, 0), value=-2)[:, :x.shape[1]]
        return moved * (other == self.segments)[..., None]

    def product(self, name):
        return linear(self.weights, f"{self.name}.{name}", self.x)

    def convolved(self, name):
        x = self.product(name + ".projection")
        filters = self.weights.get(f"{self.name}.{name}.filter")
        if filters is None:
            return x
        size = filters.shape[1]
        return sum(self.before(x, j) * filters[:, size - 1 - j] for j in range(size))

    def recur(self, q, k, v, w=None, a=None, b=None):
        """o_t = S_t q_t with S_t = S_(t-1) (diag(w_t) + a_t b_t^T) + v_t k_t^T; all [b, c, n, features]."""
        state = torch.zeros(*v.shape[:1], self.n, v.shape[-1], k.shape[-1], dtype=v.dtype)
        last, read = torch.full_like(self.segments[:, 0], -2), []
        for t in range(q.shape[1]):
            own = self.segments[:, t]
            exists, same = (own >= 0)[:, None, None, None], (own == last)[:, None, None, None]
            known = state * same
            after = known * (1 if w is None else w[:, t, :, None]) + v[:, t, :, :, None] * k[:, t, :, None]
            if a is not None:
                after = after + torch.einsum("bnvk,bnk,bnj->bnvj", known, a[:, t], b[:, t])
            state, last = torch.where(exists, after, state), torch.where(own >= 0, own, last)
            read.append(torch.einsum("bnvk,bnk->bnv", state, q[:, t]) * exists[..., 0])
        return torch.stack(read, 1)

    def head_norm(self, o):
        return o / (o.square().mean(-1, keepdim=True) + 1e-6).sqrt() * self.weight("norm.weight")

    def gated(self, o):
        return self.head_norm(o).flatten(2) * F.silu(self.product("gate"))

    def parts(self):
        return [self.heads(self.convolved(part)) for part in ("query", "key", "value")]

    def linear_attention(self):
        def features(x):
            if self.options["features"] == "elu":
                return F.elu(x) + 1
            pairs = (x[..., :, None] * x[..., None, :]).flatten(-2)
            return torch.cat((torch.ones_like(x[..., :1]), x / x.shape[-1] ** 0.25, pairs / math.sqrt(2 * x.shape[-1])), -1)

        q, k, v = self.parts()
        q, k = features(q), features(k)
        total = self.recur(q, k, torch.ones_like(v[..., :1]))
        return (self.recur(q, k, v) / torch.where(total == 0, 1, total)).flatten(2)

    def retention(self):
        q, k, v = self.parts()
        half, c = q.shape[-1] // 2, q.shape[1]
        angle = torch.outer(torch.arange(c).double(), 1e4 ** (-torch.arange(half).double() / half))[:, None]

        def rotated(x):
            first, second = x[..., :half], x[..., half:]
            return torch.cat((first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()), -1)

        decay = (1 - 2.0 ** (-5 - torch.arange(self.n).double()))[:, None].expand_as(k)
        return self.gated(self.recur(rotated(q) / math.sqrt(2 * half), rotated(k), v, decay))

    def gated_linear_attention(self):
        q, k, v = self.parts()
        decay = torch.sigmoid(linear(self.weights, self.name + ".decay_out", self.product("decay_in"))) ** (1 / 16)
        return self.gated(self.recur(q / math.sqrt(q.shape[-1]), k, v, self.heads(decay)))

    def mamba2(self):
        def activated(name):
            return F.silu(self.convolved(name) + self.weights.get(f"{self.name}.{name}_bias", 0))

        value = self.heads(activated("value"))
        key, query = (side[:, :, None].expand(-1, -1, self.n, -1) for side in activated("key_query").chunk(2, -1))
        step = F.softplus(self.product("step") + self.weight("step_bias"))[..., None]
        decay = torch.exp(-step * self.weight("log_rate").exp()[:, None])
        o = self.recur(query, key, step * value, decay.expand_as(key)) + self.weight("skip")[:, None] * value
        y = o.flatten(2) * F.silu(self.product("gate"))
        return y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.weight("norm")

    def delta(self, decay):
        q, k, v = (F.silu(part) for part in self.parts())
        q, k, rate = unit(q) / math.sqrt(q.shape[-1]), unit(k), torch.sigmoid(self.product("rate"))[..., None]
        return self.recur(q, k, rate * v, decay.expand_as(k), -decay * rate * k, k)

    def delta_net(self):
        return self.head_norm(self.delta(torch.ones(1, dtype=self.x.dtype))).flatten(2)

    def gated_delta_net(self):
        step = F.softplus(self.product("decay") + self.weight("decay_bias"))
        return self.gated(self.delta(torch.exp(-self.weight("log_rate").exp() * step)[..., None]))

    def short_convolution(self):
        b, c, u = self.product("input").chunk(3, -1)
        filters, size = self.weight("filter"), self.options["convolution"]
        return c * sum(self.before(b * u, j) * filters[:, size - 1 - j] for j in range(size))

    def rwkv7(self):
        step = self.before(self.x, 1) - self.x
        inputs = [self.x + step * mixture for mixture in self.weight("mixture")]

        def low_rank(name, x, f=lambda y: y):
            y = F.linear(f(F.linear(x, self.weight(name + ".in"))), self.weight(name + ".out"))
            return y + self.weights.get(f"{self.name}.{name}.base", 0)

        def of(name, x):
            return linear(self.weights, f"{self.name}.{name}", x)

        def by_head(name):
            return self.weight(name).unflatten(0, (self.n, -1))

        r, key, value = of("receptance", inputs[0]), of("key", inputs[2]), of("value", inputs[3])
        if not self.first_values:
            self.first_values.append(value)
        else:
            value = value + (self.first_values[0] - value) * torch.sigmoid(low_rank("first_share", inputs[3]))
        decay = torch.exp(-math.exp(-0.5) * torch.sigmoid(low_rank("decay", inputs[1], torch.tanh)))
        rate, gate = torch.sigmoid(low_rank("rate", inputs[4])), low_rank("gate", inputs[5], torch.sigmoid)
        r, key, v, decay, rate = (self.heads(x) for x in (r, key, value, decay, rate))
        direction = unit(key * by_head("key_direction"))
        k = key * (1 + (rate - 1) * by_head("key_share"))
        o = self.recur(r, k, v, decay, -direction, direction * rate)
        o = F.layer_norm(o, o.shape[-1:], eps=64e-5) * by_head("norm_weight") + by_head("norm_bias")
        return (o + (r * by_head("bonus") * k).sum(-1, keepdim=True) * v).flatten(2) * gate


def mix(weights, name, options, x, n, context):
    def read(x, segments, direction):
        first_values = context.setdefault("first_values", {}).setdefault(direction, [])
        return getattr(Reader(weights, name, options, x, segments, n, first_values), options["kind"])()

    y = read(x, context["segments"], "forward")
    if not context["causal"] and options["direction"] == "both":
        y = y + read(x.flip(1), context["segments"].flip(1), "backward").flip(1)
    return linear(weights, name + ".output", y) * (context["segments"] >= 0)[..., None]
