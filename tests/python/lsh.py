"""LSH attention (Reformer) for the reference model, token by token and round by round, in float64."""
import numpy as np
import torch


def mixed(x):
    """splitmix64's output function."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def normal_numbers(*sizes):
    """The program's normal numbers outside training: those of draw 0 with the key 0."""
    with np.errstate(over="ignore"):
        seed = mixed(mixed(np.zeros(1, np.uint64)))
        bits = mixed(seed ^ mixed(np.arange(2 * np.prod(sizes), dtype=np.uint64)))
    first, second = ((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(-1, 2).T
    normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
    return torch.from_numpy(normal.astype(np.float32).astype(np.float64).reshape(sizes))


def buckets(q, options, context):
    """The buckets [b, n, r, c] of the queries [b, n, c, k], for a model of `context` tokens."""
    half_chunks = 2 * context // options["chunk"]
    count = max(2, half_chunks + half_chunks % 2) if options["buckets"] == "auto" else int(options["buckets"])
    rotation = normal_numbers(q.shape[1], q.shape[3], options["rounds"], count // 2)
    rotated = torch.einsum("bnck,nkri->bnrci", q.detach(), rotation)
    return torch.cat((rotated, -rotated), -1).argmax(-1)


def times_seen(bucket_rc, segment_c, options, causal):
    """How often token c sees token e in all rounds of one head, [c, e]."""
    (rounds, c), m = bucket_rc.shape, options["chunk"]
    seen = torch.zeros(c, c, dtype=torch.float64)
    if c <= m:
        copies, chunks = [(0, 0, i) for i in range(c)], 1
    else:
        padding = -c % m
        copies = sorted((r, 10**6 if i >= c or segment_c[i] < 0 else int(bucket_rc[r, i]), i)
                        for r in range(rounds) for i in range(c + padding))
        chunks = len(copies) // m
    for place, (r, bucket, i) in enumerate(copies):
        chunk = place // m
        looked_at = {chunk} if chunks == 1 else {chunk, (chunk - 1) % chunks} | (set() if causal else {(chunk + 1) % chunks})
        for other in looked_at:
            for r_key, bucket_key, j in copies[other * m:(other + 1) * m]:
                if i >= c or j >= c or i == j or (causal and j > i) or segment_c[i] < 0 or segment_c[i] != segment_c[j]:
                    continue
                if c <= m or options["visible"] == "chunk" or (r, bucket) == (r_key, bucket_key):
                    seen[i, j] += 1
    return seen


def attend(q, v, bucket, segments, options, causal):
    """The mean of the values [b, n, c, k] with weights of exp(q . k / |k|) times the number of times that the key is seen. A token
    that sees nothing gets its own value, and padding gets zeros."""
    seen = torch.stack([torch.stack([times_seen(bucket_rc, segment_c, options, causal) for bucket_rc in bucket_nrc])
                        for bucket_nrc, segment_c in zip(bucket, segments)])
    if options["correct_duplicates"]:
        seen = seen.clamp(max=1)
    weight = seen * torch.exp(q @ (q / q.norm(dim=-1, keepdim=True)).transpose(2, 3))
    total = weight.sum(-1, keepdim=True)
    own = v * (segments >= 0)[:, None, :, None]
    return torch.where(total > 0, weight @ v / total.clamp(min=1e-300), own)
