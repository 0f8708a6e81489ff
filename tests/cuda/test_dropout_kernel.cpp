// The source of the CUDA dropout kernel, compiled for the emulator or for a GPU: the same bits as on the CPU, from a
// key in device memory.

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "base/random.h"
#include "cpu/dropout.h"
#include "cuda/dropout.h"
#include "cuda/kernel_memory.h"
#include "gpu.h"
#include "support/catch.h"

namespace metaformer {

namespace {

using cuda::DropoutPlaces;
using cuda::RowElement;

constexpr double probability = 0.3;
constexpr auto elements = {RowElement::fp32, RowElement::bf16, RowElement::fp16};

struct Draw {
  std::uint64_t key = 0x9876543210abcdefULL, number = 0;
};

// The start of x and y: in entries after a multiple of 16 bytes, or such that they end at a page without access.
struct Layout {
  std::size_t x = 0, y = 0;
  bool at_the_end = false;
};

std::vector<float> numbers(std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = 0.01F * static_cast<float>(i % 1000) - 3.7F;
  return x;
}

std::size_t bytes_of(RowElement element) { return element == RowElement::fp32 ? 4 : 2; }

// The bits of the number in the type.
std::uint32_t stored(RowElement element, float x) {
  if (element == RowElement::fp32) return gpu::bits_of(x);
  return element == RowElement::bf16 ? gpu::to_bf16(x) : gpu::to_fp16(x);
}
float number_of(RowElement element, std::uint32_t bits) {
  if (element == RowElement::fp32) return gpu::float_of(bits);
  const auto half = static_cast<std::uint16_t>(bits);
  return element == RowElement::bf16 ? gpu::from_bf16(half) : gpu::from_fp16(half);
}

// Entries in memory for the kernel, and some bytes around them.
class Entries {
 public:
  Entries(RowElement element, std::size_t count, std::size_t shift, bool at_the_end)
      : size_(bytes_of(element)), count_(count), memory_((count * size_ + 15) / 16 * 16 + 16) {
    const auto total = (count * size_ + 15) / 16 * 16 + 16;
    before_ = at_the_end ? total - count * size_ : shift * size_;
    behind_ = total - before_ - count * size_;
  }

  unsigned char* data() const { return memory_.data() + before_; }
  void set(std::size_t i, std::uint32_t bits) const { std::memcpy(data() + i * size_, &bits, size_); }
  std::uint32_t get(std::size_t i) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, data() + i * size_, size_);
    return bits;
  }
  // Whether the bytes around the entries are unchanged.
  bool is_alone() const {
    const auto is_filled = [](const unsigned char* from, std::size_t count) {
      return std::all_of(from, from + count, [](unsigned char byte) { return byte == 0xff; });
    };
    return is_filled(memory_.data(), before_) && is_filled(data() + count_ * size_, behind_);
  }

 private:
  std::size_t size_, count_, before_ = 0, behind_ = 0;
  KernelMemory memory_;
};

// The bits that the kernel stores.
std::vector<std::uint32_t> by_kernel(RowElement element, const std::vector<float>& x, const Draw& draw,
                                     const std::optional<DropoutPlaces>& places = {}, const Layout& layout = {}) {
  const Entries from(element, x.size(), layout.x, layout.at_the_end),
      to(element, x.size(), layout.y, layout.at_the_end);
  const KernelMemory key(sizeof(draw.key));
  for (std::size_t i = 0; i < x.size(); ++i) from.set(i, stored(element, x[i]));
  std::memcpy(key.data(), &draw.key, sizeof(draw.key));
  cuda::dropout({.element = element,
                 .x = from.data(),
                 .y = to.data(),
                 .count = static_cast<std::int64_t>(x.size()),
                 .probability = probability,
                 .key = reinterpret_cast<const std::int64_t*>(key.data()),
                 .number = draw.number,
                 .places = places.value_or(DropoutPlaces{.run = std::max<std::int64_t>(1, std::ssize(x))})},
                nullptr);
  finish_kernels();
  CHECK(to.is_alone());
  std::vector<std::uint32_t> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = to.get(i);
  return y;
}

// The bits by the CPU's mask, one entry at a time. `place_of`: the place of an entry.
template <class PlaceOf>
std::vector<std::uint32_t> by_host(RowElement element, const std::vector<float>& x, const Draw& draw,
                                   const PlaceOf& place_of) {
  const DropoutMask mask(probability, Rng::with_key(draw.key).bits(draw.number));
  std::vector<std::uint32_t> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float value = number_of(element, stored(element, x[i]));
    float left = 0;
    mask.apply(&value, &left, 1, place_of(static_cast<std::int64_t>(i)));
    y[i] = stored(element, left);
  }
  return y;
}

// By the documentation: the bits of each number within the limits, and above them the bits beyond the limits.
std::int64_t place_of_weight(std::int64_t row, std::int64_t head, std::int64_t query, std::int64_t key) {
  const auto near = row << 40 | head % 256 << 32 | query % 65536 << 16 | key % 65536;
  return near | head / 256 << 60 | query / 65536 << 55 | key / 65536 << 50;
}

// A tensor with the places of rows, of weights, or of runs with given starts.
struct Tensor {
  std::int64_t run = 1, runs = 1, heads = 0, queries = 0;
  std::vector<std::int64_t> starts = {};

  std::size_t count() const { return static_cast<std::size_t>(run * runs); }
  std::int64_t place_of(std::int64_t entry) const {
    const auto number = entry / run, offset = entry % run;
    if (!starts.empty()) return starts[static_cast<std::size_t>(number)] + offset;
    if (heads == 0) return ((9 + number) << 40) + offset;
    return place_of_weight(9 + number / queries / heads, number / queries % heads, number % queries, offset);
  }
};

void check_places(RowElement element, const Tensor& tensor, const Layout& layout = {}) {
  INFO("runs of " << tensor.run << ", " << tensor.heads << " heads, " << tensor.queries << " queries");
  const KernelMemory starts(sizeof(std::int64_t) * tensor.starts.size());
  std::memcpy(starts.data(), tensor.starts.data(), sizeof(std::int64_t) * tensor.starts.size());
  DropoutPlaces places{.run = tensor.run, .first_row = 9, .heads = tensor.heads, .queries = tensor.queries};
  if (!tensor.starts.empty()) places.starts = reinterpret_cast<const std::int64_t*>(starts.data());
  const auto x = numbers(tensor.count());
  CHECK(by_kernel(element, x, {}, places, layout) ==
        by_host(element, x, {}, [&](std::int64_t entry) { return tensor.place_of(entry); }));
}

// The first run, in whole vectors of the CPU's mask.
std::vector<float> by_vectors(const std::vector<float>& x, const Draw& draw) {
  std::vector<float> y(x.size());
  DropoutMask(probability, Rng::with_key(draw.key).bits(draw.number)).apply(x.data(), y.data(), std::ssize(x), 0);
  return y;
}

}  // namespace

TEST_CASE("the dropout kernel gives the same bits as the CPU", "[dropout]") {
  const std::size_t count = GENERATE(1, 255, 256, 5000);
  const Draw draw{.number = GENERATE(0U, 1U, 77U)};
  const auto x = numbers(count);
  const auto expected = by_vectors(x, draw), given = [&] {
    std::vector<float> y;
    for (const auto bits : by_kernel(RowElement::fp32, x, draw)) y.push_back(gpu::float_of(bits));
    return y;
  }();
  CHECK(given == expected);
  for (const auto element : elements)
    CHECK(by_kernel(element, x, draw) == by_host(element, x, draw, [](std::int64_t entry) { return entry; }));
}

TEST_CASE("the dropout kernel gives the same bits as the CPU for every number of entries and alignment", "[dropout]") {
  const auto element = GENERATE(values(elements));
  const auto layout = GENERATE(Layout{}, Layout{.x = 1, .y = 1}, Layout{.x = 0, .y = 1}, Layout{.x = 3, .y = 0},
                               Layout{.at_the_end = true});
  std::vector<std::size_t> counts(41);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = i;
  constexpr std::size_t block = 2048;
  for (const auto blocks : {1, 2, 3})
    for (const auto more : {-9, -8, -7, -1, 0, 1, 7, 8, 9})
      counts.push_back(blocks * block + static_cast<std::size_t>(more));
  for (const auto count : counts) {
    INFO(count << " entries");
    const auto x = numbers(count);
    CHECK(by_kernel(element, x, {}, {}, layout) == by_host(element, x, {}, [](std::int64_t entry) { return entry; }));
  }
}

TEST_CASE("the kernel draws by the key in memory and by the number of the draw", "[dropout]") {
  const std::vector<float> ones(2000, 1);
  const auto draw = [&](const Draw& given) { return by_kernel(RowElement::fp32, ones, given); };
  const auto first = draw({});
  CHECK(first == draw({}));
  CHECK(first != draw({.number = 1}));
  CHECK(first != draw({.key = 5}));
}

TEST_CASE("the kernel finds the places of rows, of weights, and of runs with given starts", "[dropout]") {
  const auto element = GENERATE(values(elements));
  const auto layout = GENERATE(Layout{}, Layout{.x = 1, .y = 1});
  // Shorter and longer than the entries of a thread, with ends anywhere among them.
  const std::int64_t run = GENERATE(1, 2, 3, 5, 7, 8, 9, 12, 15, 16, 17, 31, 64, 65, 100, 2047, 2049);
  const auto runs = std::max<std::int64_t>(4, 700 / run);
  check_places(element, {.run = run, .runs = runs}, layout);
  check_places(element, {.run = run, .runs = 2 * 3 * 5, .heads = 3, .queries = 5}, layout);
  Tensor with_starts{.run = run, .runs = runs};
  const Rng rng(3, RandomPurpose::evaluation);
  for (std::int64_t i = 0; i < runs; ++i)
    with_starts.starts.push_back(i % 3 == 0 ? (i << 32) + (std::int64_t{1} << 32) - 5  // the lower half overflows
                                            : static_cast<std::int64_t>(rng.bits(static_cast<std::uint64_t>(i)) >> 2));
  check_places(element, with_starts, layout);
}

TEST_CASE("the kernel gives weights beyond 256 heads and 65,536 tokens distinct places", "[dropout]") {
  const auto element = GENERATE(RowElement::fp32, RowElement::bf16);
  check_places(element, {.run = 3, .runs = 2 * 600 * 2, .heads = 600, .queries = 2});
  check_places(element, {.run = 70'000, .runs = 1, .heads = 1, .queries = 1});
  check_places(element, {.run = 1, .runs = 70'000, .heads = 1, .queries = 70'000});
  // Three ranges of places within a thread's entries.
  check_places(element, {.run = 65'537, .runs = 2, .heads = 1, .queries = 2});
}

TEST_CASE("weights have distinct places up to the limits", "[dropout]") {
  const std::int64_t heads[] = {0, 1, 255, 256, 257, 511, 512, 4095};
  const std::int64_t tokens[] = {0, 1, 255, 65'535, 65'536, 65'537, 131'072, 2'097'151};
  const std::int64_t rows[] = {0, 1, 2, 512, 1023};
  std::set<std::int64_t> places;
  std::size_t count = 0;
  for (const auto row : rows)
    for (const auto head : heads)
      for (const auto query : tokens)
        for (const auto key : tokens) {
          const auto place = cuda::place_of_weight(row, head, query, key);
          CHECK(place == place_of_weight(row, head, query, key));
          if (head < 256 && query < 65'536 && key < 65'536)
            CHECK(place == (row << 40) + (head << 32) + (query << 16) + key);
          places.insert(place);
          ++count;
        }
  CHECK(places.size() == count);
}

TEST_CASE("division by a product with a reciprocal is exact", "[dropout]") {
  std::vector<std::int64_t> numbers;
  for (int bit = 0; bit < 63; ++bit)
    for (const auto more : {-1, 0, 1})
      if (const auto n = (std::int64_t{1} << bit) + more; n > 0) numbers.push_back(n);
  const Rng rng(1, RandomPurpose::evaluation);
  for (std::uint64_t i = 0; i < 200; ++i) numbers.push_back(1 + static_cast<std::int64_t>(rng.bits(i) >> (1 + i % 60)));
  numbers.push_back(std::numeric_limits<std::int64_t>::max());
  bool equal = true;
  for (const auto divisor : numbers) {
    const cuda::Divisor by(divisor);
    const auto most = std::numeric_limits<std::int64_t>::max() / divisor * divisor;  // the largest multiple
    for (const auto n : {std::int64_t{0}, most - 1, most}) equal = equal && by.quotient(n) == n / divisor;
    for (const auto n : numbers) equal = equal && by.quotient(n) == n / divisor;
  }
  CHECK(equal);
}

TEST_CASE("dropout of no entries starts no kernel", "[dropout]") {
  CHECK_NOTHROW(cuda::dropout({.count = 0, .probability = probability}, nullptr));
}

}  // namespace metaformer
