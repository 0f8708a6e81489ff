"""The reference model's LSH attention (lsh.py), which the program is compared with, against transformers' Reformer layer with
the same buckets, in float64.

usage: compare_reformer.py
"""
import functools
import os

import torch

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
from transformers import ReformerConfig  # noqa: E402
from transformers.models.reformer.modeling_reformer import LSHSelfAttention  # noqa: E402

import lsh  # noqa: E402
from cases import run_cases  # noqa: E402

HEADS, WIDTH, BUCKETS, TOLERANCE = 2, 10, 4, 1e-5
# Their layer rounds the vectors' norms by an epsilon of 1e-6, and masks by -1e5 in the type of the scores.


def check(rounds, chunk, c, causal):
    torch.manual_seed(1)
    config = ReformerConfig(
        hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, attention_head_size=WIDTH, lsh_attn_chunk_length=chunk,
        lsh_num_chunks_before=1, lsh_num_chunks_after=0 if causal else 1, num_hashes=rounds, num_buckets=BUCKETS,
        is_decoder=causal, lsh_attention_probs_dropout_prob=0.0)
    theirs = LSHSelfAttention(config).double().eval()
    theirs.mask_value_float32 = theirs.mask_value_float32.double()
    theirs.self_mask_value_float32 = theirs.self_mask_value_float32.double()
    x = 3 * torch.randn(2, c, HEADS * WIDTH, dtype=torch.float64)
    q, v = (layer(x).unflatten(2, (HEADS, WIDTH)).transpose(1, 2) for layer in (theirs.query_key, theirs.value))
    options = {"chunk": chunk, "rounds": rounds, "buckets": str(BUCKETS), "visible": "chunk", "correct_duplicates": False}
    bucket = lsh.buckets(q, options, c)
    ours = lsh.attend(q, v, bucket, torch.zeros(2, c, dtype=torch.long), options, causal)
    with_round = bucket + BUCKETS * torch.arange(rounds)[:, None]
    with torch.no_grad():
        given = theirs(x, buckets=with_round.flatten(2)).hidden_states.unflatten(2, (HEADS, WIDTH)).transpose(1, 2)
    error = ((ours - given).norm() / given.norm()).item()
    assert error < TOLERANCE, f"relative error {error:.1e}"
    return f"{error:.1e}"


def main():
    run_cases({f"{rounds} rounds, chunks of {chunk}, {c} tokens, {'causal' if causal else 'both ways'}":
               functools.partial(check, rounds, chunk, c, causal)
               for rounds, chunk, c in ((1, 4, 16), (3, 4, 16), (2, 8, 64), (2, 8, 8)) for causal in (True, False)})


if __name__ == "__main__":
    main()
