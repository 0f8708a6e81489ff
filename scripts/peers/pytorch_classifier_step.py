#!/usr/bin/env python3
"""The training step of imdb_scaled_dot_product.yaml in plain PyTorch, for comparison with `metaformer bench step`.

  pytorch_classifier_step.py ARCHIVE --precision fp32 --steps 50

The same network on the same kind of batches as ours: words of the training reviews, noise, head and tail, batches of 32
sorted by length within 50 steps, padding masked; label smoothing, clipping to 1, AdamW with a separate decay for
embeddings. One line of JSON: median milliseconds over --rounds of --steps, memory, and the loss. bf16 is autocast.
"""
import argparse
import collections
import json
import re
import resource
import statistics
import tarfile
import time

import numpy
import torch
from torch import nn
from torch.nn import functional

WORD = re.compile(r"[a-z0-9\x80-\U0010ffff]+(?:'[a-z0-9\x80-\U0010ffff]+)*|\S")
UNKNOWN, VOCABULARY, CONTEXT, BATCH, GROUP = 0, 5_000, 512, 32, 50


def read_reviews(archive):
    reviews = []
    with tarfile.open(archive, mode="r|gz") as tar:
        for entry in tar:
            parts = entry.name.split("/")
            if len(parts) == 4 and parts[1] == "train" and parts[2] in ("pos", "neg"):
                reviews.append((WORD.findall(tar.extractfile(entry).read().decode().lower()), parts[2] == "pos"))
    counts = collections.Counter(word for words, _ in reviews for word in words)
    ids = {word: 1 + i for i, (word, _) in enumerate(counts.most_common(VOCABULARY - 1))}
    return [(numpy.array([ids.get(word, UNKNOWN) for word in words]), int(label)) for words, label in reviews]


def draw_batches(reviews, random):
    """Endless padded batches: ids, padding mask, labels."""
    while True:
        order = random.permutation(len(reviews))
        for first in range(0, len(order) - BATCH * GROUP + 1, BATCH * GROUP):
            group = []
            for index in order[first : first + BATCH * GROUP]:
                ids, label = reviews[index]
                draw = random.random(len(ids))
                ids = numpy.where(draw < 0.2, UNKNOWN, ids)[draw >= 0.15]
                if len(ids) > CONTEXT:
                    ids = numpy.concatenate([ids[: CONTEXT // 2], ids[-CONTEXT // 2 :]])
                group.append((ids, label))
            group.sort(key=lambda text: len(text[0]))
            for step in random.permutation(GROUP):
                texts = group[step * BATCH : (step + 1) * BATCH]
                length = max(len(ids) for ids, _ in texts)
                rows = numpy.zeros((BATCH, length), dtype=numpy.int64)
                real = numpy.zeros((BATCH, length), dtype=bool)
                for row, (ids, _) in enumerate(texts):
                    rows[row, : len(ids)] = ids
                    real[row, : len(ids)] = True
                yield torch.from_numpy(rows), torch.from_numpy(real), torch.tensor([label for _, label in texts])


class Classifier(nn.Module):
    def __init__(self, width=64, heads=2, vocabulary=VOCABULARY):
        super().__init__()
        self.heads = heads
        self.token_table, self.position_table = nn.Embedding(vocabulary, width), nn.Embedding(CONTEXT, width)
        self.attention_norm, self.hidden_norm = (nn.LayerNorm(width, bias=False) for _ in range(2))
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)
        self.head = nn.Linear(width, 2)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        nn.init.normal_(self.token_table.weight, std=0.1)

    def attend(self, x_bcd, real_bc):
        parts = self.query_key_value(x_bcd).chunk(3, dim=2)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=real_bc[:, None, None, :])
        return self.output(mixed.transpose(1, 2).flatten(2))

    def forward(self, ids_bc, real_bc, labels_b):
        x_bcd = self.token_table(ids_bc) + self.position_table.weight[: ids_bc.shape[1]]
        x_bcd = x_bcd * functional.dropout(torch.ones_like(x_bcd[:, :1]), 0.3)
        x_bcd = x_bcd + self.attend(self.attention_norm(x_bcd), real_bc)
        hidden = self.down(functional.gelu(self.up(self.hidden_norm(x_bcd))))
        logits_bcv = self.head(x_bcd + hidden).float()
        real_bc1 = real_bc[:, :, None]
        logits_bv = (logits_bcv * real_bc1).sum(1) / real_bc1.sum(1)
        return functional.cross_entropy(logits_bv, labels_b, label_smoothing=0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive")
    for name, default in [("steps", 50), ("rounds", 1), ("warmup", 10)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    a = parser.parse_args()
    torch.manual_seed(1337)
    model = Classifier()
    tables = [model.token_table.weight, model.position_table.weight]
    is_table = {id(table) for table in tables}
    matrices = [p for p in model.parameters() if p.dim() >= 2 and id(p) not in is_table]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": tables, "weight_decay": 0.3}, {"params": matrices, "weight_decay": 0.05},
                                   {"params": vectors, "weight_decay": 0.0}], lr=2e-3, betas=(0.9, 0.98), fused=True)
    batches = draw_batches(read_reviews(a.archive), numpy.random.default_rng(1))

    def step():
        ids_bc, real_bc, labels_b = next(batches)
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            loss = model(ids_bc, real_bc, labels_b)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def timed():
        start = time.perf_counter()
        for _ in range(a.steps):
            loss = step()
        return (time.perf_counter() - start) / a.steps * 1e3, loss

    for _ in range(a.warmup):
        step()
    rounds = [timed() for _ in range(a.rounds)]
    print(json.dumps({"peer": "pytorch", "torch": torch.__version__, "threads": torch.get_num_threads(),
                      "precision": a.precision, "ms_per_step": statistics.median(ms for ms, _ in rounds),
                      "loss": rounds[-1][1],
                      "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
