"""Mixers that depend on the places of tokens, text by text from the formulas of their papers, for reference_model.py."""
import math

import torch
import torch.nn.functional as F

KINDS = ("random", "static", "spatial_gating", "fourier", "hyena")


def texts_of(segments):
    """(row, first token, token after the last) of every text."""
    for row, ids in enumerate(segments.tolist()):
        first = 0
        for place in range(1, len(ids) + 1):
            if place == len(ids) or ids[place] != ids[first]:
                if ids[first] >= 0:
                    yield row, first, place
                first = place


class Text:
    """One text, [tokens, d], of a mixer with these weights."""

    def __init__(self, weights, name, options, x, causal, context):
        self.weights, self.name, self.options, self.x = weights, name, options, x
        self.causal, self.context = causal, context

    def weight(self, name):
        return self.weights[f"{self.name}.{name}"]

    def linear(self, name, x):
        return F.linear(x, self.weight(name + ".weight"), self.weights.get(f"{self.name}.{name}.bias"))

    def seen(self, table):
        tokens = len(self.x)
        entries = table[..., :tokens, :tokens]
        return entries, (torch.ones(tokens, tokens).tril() if self.causal else torch.ones(tokens, tokens)) > 0

    def mean(self):
        own = self.options["values"] == "own"
        table, mask = self.seen(self.weight("table"))
        weight = torch.softmax(table.masked_fill(~mask, -math.inf), -1)
        values = (self.linear("value", self.x) if own else self.x).unflatten(-1, (len(weight), -1))
        y = torch.einsum("nce,enk->cnk", weight, values).flatten(1)
        return self.linear("output", y) if own else y

    random = static = mean

    def spatial_gating(self):
        u, v = F.gelu(self.linear("input", self.x)).chunk(2, -1)
        v = F.layer_norm(v, v.shape[-1:], self.weight("norm_weight"), self.weight("norm_bias"))
        table, mask = self.seen(self.weight("table")[0])
        return self.linear("output", u * ((table * mask) @ v + self.weight("offset")[:len(v), None]))

    def fourier(self):
        return torch.fft.fft2(self.x).real / math.sqrt(self.x.numel())

    def hyena(self):
        y = self.hyena_in_order(self.x)
        if not self.causal and self.options["direction"] == "both":
            y = y + self.hyena_in_order(self.x.flip(0)).flip(0)
        return self.linear("output", y)

    def hyena_in_order(self, x):
        tokens, d = x.shape
        z = self.linear("input.projection", x)
        if (filters := self.weights.get(self.name + ".input.filter")) is not None:
            size = filters.shape[1]
            z = F.conv1d(F.pad(z.T[None], (size - 1, 0)), filters[:, None], groups=len(filters))[0].T
        parts = z.split(d, -1)
        time = torch.arange(self.context).double()
        w = 2 * math.pi * time[:, None] / self.context
        waves = torch.exp(-1j * torch.linspace(1e-4, 15, 16, dtype=torch.float64) * w)
        h = torch.cat((time[:, None] / (self.context - 1), waves.real, waves.imag), 1)
        for i, layer in enumerate(("filter_in", "filter_hidden_0", "filter_hidden_1")):
            h = torch.sin(self.weight("frequency") * F.linear(h, self.weight(layer), self.weight(f"filter_offset_{i}")))
        h = F.linear(h, self.weight("filter_out"))
        deltas = torch.linspace(math.log(1e-2) / 1.5, math.log(1e-2) / 0.3, h.shape[1], dtype=torch.float64)
        h = (h * torch.exp(-(time / (self.context - 1))[:, None] * deltas.abs()))[:tokens]
        v = parts[-1]
        for i in range(self.options["order"] - 1, 0, -1):
            v, mine = v * parts[i], slice((i - 1) * d, i * d)
            both = torch.fft.rfft(v, 2 * tokens, 0) * torch.fft.rfft(h[:, mine], 2 * tokens, 0)
            v = torch.fft.irfft(both, 2 * tokens, 0)[:tokens] + v * self.weight("direct")[mine]
        return v * parts[0]


def mix(weights, name, options, x, context):
    rows = [[] for _ in x]
    y = torch.zeros_like(x)
    for row, first, end in texts_of(context["segments"]):
        text = Text(weights, name, options, x[row, first:end], context["causal"], context["context"])
        rows[row].append((first, end, getattr(text, options["kind"])()))
    whole = []
    for row, texts in enumerate(rows):
        parts, at = [], 0
        for first, end, of_text in texts:
            parts += [y[row, at:first], of_text]
            at = end
        whole.append(torch.cat([*parts, y[row, at:]]))
    return torch.stack(whole)
