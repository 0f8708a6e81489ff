// The CUDA dropout kernel, its own source compiled for the emulator or for a GPU: the bits of the CPU's, from a key in
// device memory.

#include <cstring>
#include <optional>
#include <vector>

#include "base/random.h"
#include "cpu/dropout.h"
#include "cuda/dropout.h"
#include "cuda/kernel_memory.h"
#include "support/catch.h"

namespace metaformer {

namespace {

constexpr double probability = 0.3;

struct Draw {
  std::uint64_t key = 0x9876543210abcdefULL, number = 0;
};

std::vector<float> numbers(std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = 0.01F * static_cast<float>(i % 1000) - 3.7F;
  return x;
}

template <class Element>
std::vector<Element> by_kernel(cuda::DropoutElement element, const std::vector<Element>& x, const Draw& draw,
                               std::optional<cuda::DropoutPlaces> places = {}) {
  const auto bytes = x.size() * sizeof(Element);
  KernelMemory from(bytes), to(bytes), key(sizeof(draw.key));
  std::memcpy(from.data(), x.data(), bytes);
  std::memcpy(key.data(), &draw.key, sizeof(draw.key));
  cuda::dropout({.element = element,
                 .x = from.data(),
                 .y = to.data(),
                 .count = static_cast<std::int64_t>(x.size()),
                 .probability = probability,
                 .key = reinterpret_cast<const std::int64_t*>(key.data()),
                 .number = draw.number,
                 .places = places.value_or(cuda::DropoutPlaces{.run = static_cast<std::int64_t>(x.size())})},
                nullptr);
  finish_kernels();
  std::vector<Element> y(x.size());
  std::memcpy(y.data(), to.data(), bytes);
  return y;
}

template <class Element>
std::vector<Element> by_host(const std::vector<Element>& x, const Draw& draw) {
  std::vector<Element> y(x.size());
  DropoutMask(probability, Rng::with_key(draw.key).bits(draw.number))
      .apply(x.data(), y.data(), static_cast<std::int64_t>(x.size()), 0);
  return y;
}

}  // namespace

TEST_CASE("the dropout kernel gives the bits of the CPU's", "[dropout]") {
  const std::size_t count = GENERATE(1, 255, 256, 5000);
  const Draw draw{.number = GENERATE(0U, 1U, 77U)};
  const auto x = numbers(count);
  CHECK(by_kernel(cuda::DropoutElement::fp32, x, draw) == by_host(x, draw));
  std::vector<std::uint16_t> narrow(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x[i], sizeof(bits));
    narrow[i] = static_cast<std::uint16_t>(bits >> 16);
  }
  CHECK(by_kernel(cuda::DropoutElement::bf16, narrow, draw) == by_host(narrow, draw));
}

TEST_CASE("dropout in fp16 takes the same entries", "[dropout]") {
  const std::vector<std::uint16_t> ones(3000, 0x3c00);
  const auto given = by_kernel(cuda::DropoutElement::fp16, ones, {});
  const auto expected = by_host(std::vector<float>(ones.size(), 1), {});
  for (std::size_t i = 0; i < ones.size(); ++i) {
    REQUIRE((given[i] == 0) == (expected[i] == 0));
    REQUIRE((given[i] == 0 || given[i] == 0x3db7));  // 1 / 0.7, to the nearest
  }
}

TEST_CASE("the kernel draws by the key that lies in memory, and by the number of the draw", "[dropout]") {
  const std::vector<float> ones(2000, 1);
  const auto draw = [&](const Draw& given) { return by_kernel(cuda::DropoutElement::fp32, ones, given); };
  const auto first = draw({});
  CHECK(first == draw({}));
  CHECK(first != draw({.number = 1}));
  CHECK(first != draw({.key = 5}));
}

TEST_CASE("the kernel finds the places of rows, of weights and of what has its own", "[dropout]") {
  const std::vector<float> ones(120, 1);
  const std::vector<std::int64_t> starts = {5, 1000, std::int64_t{7} << 41};
  KernelMemory memory(sizeof(starts[0]) * starts.size());
  std::memcpy(memory.data(), starts.data(), sizeof(starts[0]) * starts.size());
  const auto rows = GENERATE(cuda::DropoutPlaces{.run = 40, .first_row = 9},
                             cuda::DropoutPlaces{.run = 5, .first_row = 9, .heads = 2, .queries = 4},
                             cuda::DropoutPlaces{.run = 40, .starts = nullptr});
  auto places = rows;
  const bool has_starts = places.first_row == 0;
  if (has_starts) places.starts = reinterpret_cast<const std::int64_t*>(memory.data());
  const auto given = by_kernel(cuda::DropoutElement::fp32, ones, {}, places);
  const DropoutMask mask(probability, Rng::with_key(Draw{}.key).bits(0));
  std::vector<float> expected(ones.size());
  for (std::int64_t entry = 0; entry < std::ssize(ones); ++entry) {
    const auto run = entry / places.run;
    const auto row = places.heads == 0 ? run : run / 8, head = run / 4 % 2, query = run % 4;
    const auto start = has_starts ? starts[static_cast<std::size_t>(run)]
                       : places.heads == 0
                           ? (9 + row) << cuda::row_shift
                           : ((9 + row) << cuda::row_shift) + (head << cuda::head_shift) + (query << cuda::query_shift);
    mask.apply(&ones[static_cast<std::size_t>(entry)], &expected[static_cast<std::size_t>(entry)], 1,
               start + entry % places.run);
  }
  CHECK(given == expected);
}

TEST_CASE("dropout of nothing starts no kernel", "[dropout]") {
  CHECK_NOTHROW(cuda::dropout({.count = 0, .probability = probability}, nullptr));
}

}  // namespace metaformer
