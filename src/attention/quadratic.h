#pragma once
// Scaled dot product attention written as quadratic attention of form full.

#include "ops/named_tensors.h"

namespace metaformer {

// The parameters of a quadratic mixer, form full, that computes what a scaled dot product mixer without biases
// computes: U_ndd = W_q^T W_k for each head, of rank k at most, and the projection of values. `scaled_dot_product`: its
// parameters by name ("query_key_value.weight", "output.weight"). Throws Error (exit code 2) for one with biases or
// qk_norm, which no form U expresses.
NamedTensors full_form_of(const NamedTensors& scaled_dot_product, std::int64_t heads);

}  // namespace metaformer
