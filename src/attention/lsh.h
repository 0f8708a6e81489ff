#pragma once
// The two steps of LSH attention (Kitaev, Kaiser and Levskaya 2020, section 2): tokens are hashed, and attend to those
// that the hashes put near them.
//
// A score is q_i . k_j with k_j = q_j / |q_j|. In each of r rounds tokens are sorted by bucket, then by position, and
// the concatenated sorted sequences of all rounds are cut into chunks of m. Each chunk looks at itself, at the previous
// chunk (the first one: at the last) and, unless causal, at the next chunk. In a round o_i is the softmax attention
// over the tokens that i sees there, and z_i the logarithm of the softmax's denominator; the result is the sum over
// rounds of softmax_r(z_i) o_i. No token sees itself, unless it sees nothing else in any round.

#include <torch/types.h>

#include "attention/mixer.h"
#include "config/mixer_config.h"
#include "ops/pass.h"

namespace metaformer {

// Angular hashing (Andoni et al. 2015): the index of the largest entry of [x R; -x R] for every round r, with R of
// rotation_nkri, a random normal matrix for each head and round. Values in 0 ... 2 i - 1. Has no gradient.
torch::Tensor lsh_buckets_bnrc(const torch::Tensor& q_bnck, const torch::Tensor& rotation_nkri);

struct LshRule {
  std::int64_t chunk = 64;
  bool causal = false;
  bool same_bucket = false;         // a token sees only tokens of its bucket
  bool correct_duplicates = false;  // subtracts log(how often i sees j in all rounds) from the score
  double dropout = 0;               // of the weights, in training
};

// Returns t_bnck. Segments as in Visibility, or undefined. A sequence not longer than a chunk is attended to in full;
// then buckets may be undefined. A kernel on the CPU (cpu/hashed_attention.h) computes it if possible: no dropout in
// this pass, no correction of duplicates, and chunks that are multiples of hashed_chunk_step.
torch::Tensor lsh_attention(const torch::Tensor& q_bnck, const torch::Tensor& value_bnck,
                            const torch::Tensor& bucket_bnrc, const torch::Tensor& segment_bc, const LshRule& rule,
                            Pass& pass);

// Both steps, for a model of `context` tokens. Training draws new hashes in every pass; otherwise they are always the
// same.
torch::Tensor hash_and_attend(const torch::Tensor& q_bnck, const torch::Tensor& value_bnck, const LshOptions& options,
                              std::int64_t context, double dropout, const Visibility& visibility, Pass& pass);

}  // namespace metaformer
