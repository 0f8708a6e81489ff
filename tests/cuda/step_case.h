#pragma once
// Runs of the kernels of the loss and of the update of weights on arrays that end at a page without access or have a
// chosen alignment, for the tests and for the faults of mutants.cpp.

#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/adam.h"
#include "cuda/cross_entropy.h"
#include "cuda/gradient_norm.h"
#include "cuda/kernel_memory.h"

namespace metaformer::step_cases {

// Numbers in [-1, 1) that look random.
float draw(std::uint64_t number);

// `count` elements of `size` bytes: `shift` elements after a multiple of 16 bytes, or such that they end at a page
// without access. The memory is filled with NaN, or with a byte.
class KernelArray {
 public:
  KernelArray(std::size_t size, std::size_t count, std::size_t shift = 0, bool at_the_end = false,
              unsigned char fill = 0xff)
      : size_(size),
        count_(count),
        before_(at_the_end ? 0 : shift * size),
        total_(at_the_end ? count * size : (before_ + count * size + 15) / 16 * 16),
        fill_(fill),
        memory_(total_) {
    std::memset(memory_.data(), fill, total_);
  }
  explicit KernelArray(const std::vector<float>& x, std::size_t shift = 0, bool at_the_end = false)
      : KernelArray(sizeof(float), x.size(), shift, at_the_end) {
    if (!x.empty()) std::memcpy(data(), x.data(), x.size() * sizeof(float));
  }

  unsigned char* data() const { return memory_.data() + before_; }
  float* floats() const { return reinterpret_cast<float*>(data()); }
  std::vector<float> values() const { return {floats(), floats() + count_}; }
  void set(std::size_t i, std::uint32_t bits) const { std::memcpy(data() + i * size_, &bits, size_); }
  std::uint32_t get(std::size_t i) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, data() + i * size_, size_);
    return bits;
  }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (std::size_t i = 0; i < count_; ++i) all.push_back(get(i));
    return all;
  }
  // Whether the bytes around the elements are as they were.
  bool is_alone() const;

 private:
  std::size_t size_, count_, before_, total_;
  unsigned char fill_;
  KernelMemory memory_;
};

struct LossCase {
  cuda::RowElement element = cuda::RowElement::fp32;
  std::int64_t rows = 1, width = 1, padding = 0;  // padding: elements between two rows
  double smoothing = 0, spread = 1;               // spread: of the logits
  std::size_t shift = 0, gradient_shift = 0;
  bool at_the_end = false;
  bool has_loss = true, has_gradient = true;
  float factor = 0.25F, computed = 0;      // computed: the factor of the stored gradients; 0: none are stored
  std::vector<std::int64_t> targets = {};  // empty: drawn; every third one is missing
  std::vector<float> logits = {};          // empty: drawn
};

struct LossResult {
  std::uint32_t loss = 0;  // bits
  std::vector<std::uint32_t> gradient;
  bool is_alone = true;  // nothing else was written
  bool operator==(const LossResult&) const = default;
};

std::vector<std::int64_t> targets_of(const LossCase& c);
std::vector<float> logits_of(const LossCase& c);  // as they are stored, without padding
LossResult run_loss(const LossCase& c);

float number_of(cuda::RowElement element, std::uint32_t bits);
std::uint32_t stored(cuda::RowElement element, float x);

struct GradientCase {
  std::vector<float> gradients;
  std::size_t shift = 0;
  bool at_the_end = false;
  double limit = 0;   // 0: no factor is needed
  float divisor = 0;  // 0: none, and found_inf is not needed
};

struct GradientResult {
  float norm, found_inf, factor;  // -1: not stored
};

GradientResult run_gradient_norm(const GradientCase& c);

// A range with arrays of its own; gradients and moments are functions of its number.
struct RangeCase {
  std::size_t count = 0, shift = 0;
  int other = -1;  // the number of one array whose shift is larger by one
  bool at_the_end = false;
  float weight_decay = 0, rate = 1;
};

// `copies`: the new values are also stored in the step's copy_element.
struct AdamCase {
  std::vector<RangeCase> ranges;
  cuda::AdamStep step = {.beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 1e-8F, .given_rate = 1e-2F};
  float steps = 0;                                // before
  float factor = 0, divisor = 0, found_inf = -1;  // -1 or 0: none
  bool rate_in_memory = false;
  float first_gradient = 1;  // a factor of the first gradient of every range
  bool copies = false;
};

struct AdamResult {
  struct Range {
    std::vector<float> values, first_moments, second_moments, gradients;
    std::vector<std::uint32_t> copies;  // bits
  };
  float steps = 0;
  std::vector<Range> before, after;
  bool is_alone = true;
};

AdamResult run_adam(const AdamCase& c);

// The bits of everything that the kernels store in some small cases that reach all their parts.
std::vector<std::uint32_t> run_step_kernels();

}  // namespace metaformer::step_cases
