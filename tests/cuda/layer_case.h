#pragma once
// Runs of the kernels of the layers between matrix products on arrays that end at a page without access or have a
// chosen alignment, for the tests and for the faults of mutants.cpp.

#include <cstdint>
#include <vector>

#include "cuda/activation.h"
#include "cuda/embedding.h"
#include "cuda/rotary.h"
#include "cuda/step_case.h"

namespace metaformer::layer_cases {

using cuda::RowElement;

// Where the arrays of a case lie.
struct Place {
  std::size_t shift = 0;  // elements after a multiple of 16 bytes
  bool at_the_end = false;
};

struct ActivationCase {
  ActivationFunction function{};
  bool gated = false;
  RowElement element = RowElement::fp32;
  std::int64_t rows = 1;
  int width = 1;
  bool has_bias = true;
  Place place = {};
  bool has_dx = true, has_dbias = true;
  std::vector<float> x = {};  // empty: drawn

  std::size_t x_width() const { return static_cast<std::size_t>(width) * (gated ? 2 : 1); }
};

struct ActivationInputs {
  std::vector<float> x, bias, dy;  // as they are stored; without a bias zeros
};
ActivationInputs inputs_of(const ActivationCase& c);

struct ActivationResult {
  std::vector<std::uint32_t> y, dx;  // bits
  std::vector<float> dbias;
  bool is_alone = true;  // nothing else was written
  bool operator==(const ActivationResult&) const = default;
};
ActivationResult run_activation(const ActivationCase& c);

struct RotaryCase {
  RowElement element = RowElement::fp32;
  std::int64_t texts = 1, heads = 1, tokens = 1;
  int width = 2, pairs = 1;
  // [b, c, n, k] in memory, each row of a token with `gap` elements more; otherwise [b, n, c, k] without gaps.
  bool by_token = false;
  std::int64_t gap = 0;
  bool in_place = false;
  float direction = 1;
  Place place = {};

  std::size_t rows() const { return static_cast<std::size_t>(texts * heads * tokens); }
};

struct RotaryInputs {
  std::vector<float> x;  // [b, n, c, k], as stored
  std::vector<float> cosines, sines;
};
RotaryInputs inputs_of(const RotaryCase& c);

struct RotaryResult {
  std::vector<std::uint32_t> y;  // [b, n, c, k]
  bool is_alone = true;
  bool operator==(const RotaryResult&) const = default;
};
RotaryResult run_rotary(const RotaryCase& c);

struct EmbeddingCase {
  std::int64_t vocabulary = 1;
  int width = 1;
  std::vector<std::int64_t> ids = {};
  Place place = {};
};

std::vector<float> gradients_of(const EmbeddingCase& c);  // [tokens, width]

struct EmbeddingResult {
  std::vector<float> dtable;  // rows of ids without tokens stay untouched_number
  bool is_alone = true;
  bool operator==(const EmbeddingResult&) const = default;
};
constexpr float untouched_number = 0x1p-100F;
EmbeddingResult run_embedding_gradient(const EmbeddingCase& c);

// Ids of which few are frequent.
std::vector<std::int64_t> drawn_ids(std::int64_t tokens, std::int64_t vocabulary);

// The bits of everything that the kernels store in some small cases that reach all their parts.
std::vector<std::uint32_t> run_layer_kernels();

}  // namespace metaformer::layer_cases
