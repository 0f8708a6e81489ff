# Copyright (c) 2026 the metaformer authors. Licence: MIT (https://opensource.org/license/mit).
"""The config of a language model of metaformer."""
from transformers import PretrainedConfig


class MetaformerConfig(PretrainedConfig):
    """`model`: the section `model` of metaformer's config, which `metaformer config explain model` explains."""
    model_type = "metaformer"

    def __init__(self, model=None, vocab_size=0, **others):
        self.model = model or {}
        self.vocab_size = vocab_size
        others.setdefault("tie_word_embeddings", self.model.get("embedding", {}).get("tie", True))
        super().__init__(**others)

    # The names that programs expect.

    @property
    def hidden_size(self):
        return self.model["width"]

    @property
    def num_hidden_layers(self):
        return self.model.get("layers", 1)

    @property
    def num_attention_heads(self):
        return self.model.get("heads", 1)

    @property
    def max_position_embeddings(self):
        return self.model["context"]
