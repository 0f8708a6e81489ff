# Copyright (c) 2026 the metaformer authors. Licence: MIT (https://opensource.org/license/mit).
"""Causal language models of metaformer in plain PyTorch: transformers with any mixer, recurrent models, and the feed-forward
model of 2003. The weights have the names of metaformer's checkpoints, and `model` is the section `model` of its configs.

A text is always computed as a whole: there is no cache, so `generate` computes all tokens again for each new one.
"""
import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .configuration_metaformer import MetaformerConfig
from .attention_metaformer import AlibiBias, DistanceBiases, T5Bias, multiple_of_8, parameter, rms_norm, rounded, wide
from .mixers_metaformer import MIXERS, PLACED, StateMixer, convolve, mixer_of


def options_of(config):
    """Dictionaries as objects: config["mixer"]["kind"] becomes options.mixer.kind."""
    if isinstance(config, dict):
        return SimpleNamespace(**{key: options_of(value) for key, value in config.items()})
    return [options_of(value) for value in config] if isinstance(config, list) else config


# The parts of a block


class Norm(nn.Module):
    """model.norm: layer_norm or rms_norm."""

    def __init__(self, model):
        super().__init__()
        self.kind, self.epsilon = model.norm.kind, model.norm.epsilon
        self.weight = parameter(model.width)
        self.bias = parameter(model.width) if model.bias and self.kind == "layer_norm" else None

    def forward(self, x):
        if self.kind == "rms_norm":
            return rms_norm(x, self.weight, self.epsilon)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


def activation(options, x):
    if options.kind == "silu":
        return x * torch.sigmoid(options.beta * x)
    if options.kind == "relu_squared":
        return F.relu(x).square()
    return {"gelu": F.gelu, "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"), "relu": F.relu}[options.kind](x)


class FeedForward(nn.Module):
    """mlp: down(f(up(x))), perhaps with f of the result; gated: down(f(gate) * u), [gate | u] = up(x) (Shazeer 2020)."""

    def __init__(self, model):
        super().__init__()
        self.options = model.feed_forward
        self.is_gated = self.options.kind == "gated"
        hidden = model.width * self.options.ratio
        hidden = multiple_of_8(hidden) if self.is_gated else rounded(hidden)
        self.up = nn.Linear(model.width, 2 * hidden if self.is_gated else hidden, model.bias)
        self.down = nn.Linear(hidden, model.width, model.bias)

    def forward(self, x):
        if self.is_gated:
            gate, up = self.up(x).chunk(2, -1)
            return self.down(activation(self.options.activation, gate) * up)
        y = self.down(activation(self.options.activation, self.up(x)))
        return activation(self.options.activation, y) if self.options.output_activation else y


class ResidualConvolution(nn.Module):
    """x plus a short convolution of x (Canon layers, Allen-Zhu 2025)."""

    def __init__(self, model):
        super().__init__()
        self.filter = parameter(model.width, model.convolution)

    def forward(self, x):
        return x + convolve(x, self.filter)


class Block(nn.Module):
    """Two branches, mixer and feed-forward, with norms and residual connections. pre: x + branch(norm(x));
    post: norm(x + branch(x)); both: x + output_norm(branch(norm(x)))."""

    def __init__(self, model, layer):
        super().__init__()
        self.model = model
        options = mixer_of(model, layer)
        self.mixer = MIXERS[options.kind](options, model, layer)
        # A mixer with a state reads the whole text at once, which is the same as one segment of it after the other.
        self.memory = 0 if isinstance(self.mixer, StateMixer) else model.memory
        self.convolution = ResidualConvolution(model) if model.convolution > 0 else nn.Identity()
        self.feed_forward = None if model.feed_forward.kind == "none" else FeedForward(model)
        for branch in ("mixer", "feed_forward") if self.feed_forward else ("mixer",):
            self.add_module(f"{branch}_norm", Norm(model))
            if model.norm.position == "both":
                self.add_module(f"{branch}_output_norm", Norm(model))

    def add(self, to, x, name, branch):
        """`to` plus the branch for x, with the norms of that name."""
        position, norm = self.model.norm.position, self.get_submodule(f"{name}_norm")
        y = branch(x if position == "post" else norm(x))
        if position == "both":
            y = self.get_submodule(f"{name}_output_norm")(y)
        y = F.dropout(y, self.model.dropout, self.training)
        y = to + y if self.model.residual else y
        return norm(y) if position == "post" else y

    def mix(self, x, shared):
        """The mixer over all tokens. With model.memory each segment of model.context tokens also reads tokens before it."""
        x = self.convolution(x)
        if self.memory == 0:
            return self.mixer(x, x, shared)
        context = self.model.context
        return torch.cat([self.mixer(x[:, first:first + context], x[:, max(0, first - self.memory):first + context], shared)
                          for first in range(0, x.shape[1], context)], 1)

    def add_mixer(self, to, x, shared):
        return self.add(to, x, "mixer", lambda y: self.mix(y, shared))

    def add_feed_forward(self, to, x):
        return to if self.feed_forward is None else self.add(to, x, "feed_forward", self.feed_forward)


# The models


def sinusoids(options, tokens, width, device):
    """PE(place, 2i) = sin(place / base^(2i / d)), PE(place, 2i + 1) = the cosine (Vaswani et al. 2017, section 3.5)."""
    pair = torch.arange((width + 1) // 2, dtype=torch.float64, device=device)
    angle = torch.outer(torch.arange(tokens, dtype=torch.float64, device=device), options.base ** (-2 * pair / width))
    return torch.stack((angle.sin(), angle.cos()), 2).flatten(1)[:, :width]


def embedded(table, ids, model, training):
    x = table(ids) * (math.sqrt(model.width) if model.embedding.scale == "sqrt_width" else 1)
    return x * F.dropout(torch.ones_like(x[:, :1]), model.embedding.dropout, training)


class Transformer(nn.Module):
    """Embeddings, blocks, and a norm after the last one."""

    def __init__(self, model, vocabulary):
        super().__init__()
        self.model = model
        kind = model.positions.kind
        self.token_embedding = nn.Embedding(vocabulary, model.width)
        self.position_embedding = nn.Embedding(model.context, model.width) if kind == "learned" else None
        self.score_bias = {"alibi": AlibiBias, "t5": T5Bias}[kind](model) if kind in ("alibi", "t5") else None
        self.distance_biases = None
        mixers = [mixer_of(model, layer) for layer in range(model.layers)]
        if kind == "transformer_xl" and model.positions.shared_biases:
            is_full = any(mixer.kind == "quadratic" and mixer.form == "full" for mixer in mixers)
            self.distance_biases = DistanceBiases(model.heads, model.width if is_full else model.width // model.heads)
        self.blocks = nn.ModuleList(Block(model, layer) for layer in range(model.layers))
        self.final_norm = Norm(model) if model.norm.final and model.norm.position != "post" else nn.Identity()
        self.places = [mixer.kind for mixer in mixers if mixer.kind in PLACED]  # they have weights for model.context places

    def embed(self, ids):
        model, tokens = self.model, ids.shape[1]
        x = embedded(self.token_embedding, ids, model, self.training)
        # With a memory a text is read in segments, and places are counted from the beginning of each.
        place = torch.arange(tokens, device=ids.device) % (model.context if model.memory > 0 else max(tokens, 1))
        if model.positions.kind == "learned":
            x = x + self.position_embedding(place)
        if model.positions.kind == "sinusoidal":
            x = x + sinusoids(model.positions, tokens, model.width, ids.device).to(x.dtype)[place]
        return F.dropout(x, model.dropout, self.training)

    def require_context(self, tokens):
        model = self.model
        learned = model.positions.kind == "learned" and model.memory == 0
        if tokens > model.context and (learned or self.places):
            why = "its positions are learned" if learned else f"the mixer {self.places[0]} has weights for so many places"
            raise ValueError(f"a text of {tokens} tokens is longer than this model's context, {model.context} tokens: {why}")

    def forward(self, ids, lengths):
        """`lengths`: the number of tokens of each text; what follows them is no text."""
        model = self.model
        self.require_context(ids.shape[1])
        x = self.embed(ids)
        shared = SimpleNamespace(lengths=lengths, score_bias=self.score_bias, distance_biases=self.distance_biases,
                                 window=model.memory if model.same_length else 0, first_value=None)
        if model.blocks == "reversible":  # two streams (Gomez et al. 2017), and the result is their mean
            one = two = x
            for block in self.blocks:
                one = block.add_mixer(one, two, shared)
                two = block.add_feed_forward(two, one)
            x = (one + two) / 2
        else:
            for block in self.blocks:
                x = block.add_mixer(x, x, shared)
                x = block.add_feed_forward(x, x)
        return self.final_norm(x)


class LanguageModel(PreTrainedModel, GenerationMixin):
    """The part that all models share: padding, the loss, and `generate`.

    Padding may stand on either side. It does not change the result, and positions are counted from the first token of a text.
    Logits at padding have no meaning."""
    config_class = MetaformerConfig
    accepts_loss_kwargs = False

    def get_input_embeddings(self):
        return self.token_embedding

    def set_input_embeddings(self, table):
        self.token_embedding = table

    def _init_weights(self, module):
        pass  # every weight is in the checkpoint

    @classmethod
    def _supports_default_dynamic_cache(cls):
        return False

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, logits_to_keep=0, **others):
        return {"input_ids": input_ids, "attention_mask": attention_mask, "logits_to_keep": logits_to_keep}

    def forward(self, input_ids, attention_mask=None, labels=None, logits_to_keep=0, return_dict=True, **others):
        """`labels`: the ids again; -100 where a token is not predicted. `logits_to_keep`: of the last tokens; 0: of all. Other
        arguments are ignored: positions follow from the attention mask, and there is no cache."""
        rows, tokens = input_ids.shape
        if attention_mask is None or bool(attention_mask.all()):
            hidden = self.hidden(input_ids, [tokens] * rows)
        else:
            # Nothing that follows a token changes its result, so all texts are moved to the front.
            is_text = attention_mask.bool()
            lengths = is_text.sum(1).tolist()
            order = (~is_text).int().argsort(dim=1, stable=True)[:, :max(1, *lengths)]
            of_texts = self.hidden(input_ids.masked_fill(~is_text, 0).gather(1, order), lengths)
            index = order[:, :, None].expand_as(of_texts)
            hidden = of_texts.new_zeros(rows, tokens, of_texts.shape[2]).scatter(1, index, of_texts)
        logits = self.logits_of(hidden[:, -logits_to_keep:])
        loss = None
        if labels is not None:
            loss = F.cross_entropy(wide(logits[:, :-1]).flatten(0, 1), labels[:, 1:].flatten())
        output = CausalLMOutput(loss=loss, logits=logits)
        return output.to_tuple() if return_dict is False else output


class MetaformerForCausalLM(LanguageModel):
    """A transformer."""

    def __init__(self, config):
        super().__init__(config)
        model = options_of(config.model)
        self.transformer = Transformer(model, config.vocab_size)
        self.head = None if model.embedding.tie else nn.Linear(model.width, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.transformer.token_embedding

    def set_input_embeddings(self, table):
        self.transformer.token_embedding = table

    def hidden(self, ids, lengths):
        return self.transformer(ids, lengths)

    def logits_of(self, hidden):
        return F.linear(hidden, self.get_input_embeddings().weight) if self.head is None else self.head(hidden)


class RecurrentForCausalLM(LanguageModel):
    """An LSTM (Hochreiter and Schmidhuber 1997) or GRU (Cho et al. 2014). It reads texts of any length."""

    def __init__(self, config):
        super().__init__(config)
        self.model = model = options_of(config.model)
        self.token_embedding = nn.Embedding(config.vocab_size, model.width)
        layers = {"lstm": nn.LSTM, "gru": nn.GRU}[model.kind]
        dropout = model.dropout if model.layers > 1 else 0
        self.add_module(model.kind, layers(model.width, model.width, model.layers, batch_first=True, dropout=dropout))
        self.head = None if model.embedding.tie else nn.Linear(model.width, config.vocab_size, bias=False)
        self.post_init()

    def hidden(self, ids, lengths):
        x = embedded(self.token_embedding, ids, self.model, self.training)
        x = self.get_submodule(self.model.kind)(F.dropout(x, self.model.dropout, self.training))[0]
        return F.dropout(x, self.model.dropout, self.training)

    def logits_of(self, hidden):
        return F.linear(hidden, self.token_embedding.weight) if self.head is None else self.head(hidden)


class FeedForwardForCausalLM(LanguageModel):
    """y = b + U tanh(d + H x) of the embeddings x of the last tokens, the oldest first (Bengio et al. 2003). A learned vector
    stands for tokens before the text."""

    def __init__(self, config):
        super().__init__(config)
        self.model = model = options_of(config.model)
        self.token_embedding = nn.Embedding(config.vocab_size, model.width)
        self.padding_embedding = nn.Embedding(1, model.width)
        self.hidden_layer = nn.Linear(model.window * model.width, model.hidden)
        self.head = nn.Module()
        self.head.weight = None if model.embedding.tie else parameter(config.vocab_size, model.hidden)
        self.head.bias = parameter(config.vocab_size)
        self.post_init()

    def hidden(self, ids, lengths):
        model = self.model
        before = embedded(self.padding_embedding, ids.new_zeros(len(ids), model.window - 1), model, False)
        x = torch.cat((before, embedded(self.token_embedding, ids, model, self.training)), 1)
        x = F.dropout(x.unfold(1, model.window, 1).mT.flatten(2), model.dropout, self.training)
        return F.dropout(torch.tanh(self.hidden_layer(x)), model.dropout, self.training)

    def logits_of(self, hidden):
        table = self.token_embedding.weight if self.head.weight is None else self.head.weight
        return F.linear(hidden, table, self.head.bias)
