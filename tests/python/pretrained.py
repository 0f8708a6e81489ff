"""Random models and tokenizers of `transformers`, and small runs of our program, for comparisons of both."""
import copy
import json
import os
import tempfile

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

code = tempfile.TemporaryDirectory()  # to which transformers copies the Python files of models
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", HF_MODULES_CACHE=code.name)

from common import run  # noqa: E402

VOCABULARY = 300
GPT2_SIZES = {"vocab_size": VOCABULARY, "n_embd": 24, "n_layer": 2, "n_head": 3}
LLAMA_SIZES = {"vocab_size": VOCABULARY, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
               "num_attention_heads": 6}


def random_model(kind, config):
    """A model whose weights all matter: norms near one, biases and all others not zero."""
    torch.manual_seed(5)
    model = kind(copy.deepcopy(config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def byte_level_tokenizer(lines, size, *special_tokens):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    tokenizer.train_from_iterator(lines * 3, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special_tokens), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return tokenizer


def with_start(tokenizer, token):
    """The tokenizer, which then puts the token before every text."""
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{token} $A",
                                                             special_tokens=[(token, tokenizer.token_to_id(token))])
    return tokenizer


def train_run(program, root, text, model, tokenizer, steps, batch_size):
    """Trains root/run."""
    (root / "text.txt").write_text(text, newline="")
    config = {"data": {"path": "text.txt", "tokenizer": tokenizer}, "model": model,
              "train": {"steps": steps, "batch_size": batch_size, "eval_interval": steps, "checkpoint_interval": steps,
                        "learning_rate": 0.01, "schedule": {"warmup_steps": 0}}}
    (root / "small.yaml").write_text(json.dumps(config))
    run(program, "train", "--config", "small.yaml", "--out", "run", "--quiet", cwd=root)
