"""Embeddings of regions of tokens as convolutions over one-hot vectors, and a bag of hashed n-grams: from the formulas, in float64."""
import torch
import torch.nn.functional as F

SIGNED_64 = 1 << 64


def sizes_of(region):
    return range(region["shortest"], region["longest"] + 1)


def embedded(weights, region, ids):
    """The features of all sizes of regions, joined: [b, c, d]. The kernel's last slice is for the token itself."""
    parts = []
    for size in sizes_of(region):
        name = f"transformer.region_embedding.{size}"
        table = weights[name + ".weight"].unflatten(0, (size, -1))
        one_hot = F.one_hot(ids, table.shape[1]).to(table.dtype).transpose(1, 2)
        parts.append(F.conv1d(F.pad(one_hot, (size - 1, 0)), table.flip(0).permute(2, 1, 0), weights[name + ".bias"]).relu())
    return torch.cat(parts, 1).transpose(1, 2)


def response_normalised(x):
    return x / (1 + x.square().sum(-1, keepdim=True)).sqrt()


def signed(x):
    return (x + SIGNED_64 // 2) % SIGNED_64 - SIGNED_64 // 2


def scattered(x, factor, shift):
    product = signed(x * signed(factor))
    return product ^ (product >> shift)


def bucket(ngram, buckets):
    """The bucket of an n-gram: two rounds of splitmix64 for every token."""
    found = len(ngram)
    for token in ngram:
        found = scattered(scattered(signed(found + token), 0xbf58476d1ce4e5b9, 30), 0x94d049bb133111eb, 29)
    return found % buckets


def buckets_of(text, options):
    """The buckets of all n-grams that end at a token of the text; -1 precedes its first token."""
    return sorted({bucket(([-1] * (n - 1) + text)[end:end + n], options["buckets"])
                   for n in range(1, options["ngrams"] + 1) for end in range(len(text))})


def bag(weights, options, ids, segments):
    rows = []
    for text, real in zip(ids, segments >= 0):
        found = buckets_of(text[real].tolist(), options)
        rows.append((weights["bag.scale"][found].unsqueeze(1) * weights["bag.weight"][found]).sum(0))
    return (torch.stack(rows) + weights["bag.bias"]).relu()


def pooled_features(config, weights, x, ids, segments):
    """The features from which the linear layer of a max_pooled head computes logits."""
    model, head, region = config["model"], config["task"]["head"], config["model"]["embedding"]["region"]
    greatest = x.masked_fill((segments < 0).unsqueeze(2), -torch.inf).amax(1)
    groups = len(sizes_of(region)) if model["layers"] == 0 and region["kind"] == "sequence" else 1
    parts = [*greatest.chunk(groups, 1)]
    if head["bag"]["kind"] == "naive_bayes":
        parts.append(bag(weights, head["bag"], ids, segments))
    return torch.cat([response_normalised(part) for part in parts] if head["response_norm"] else parts, 1)
