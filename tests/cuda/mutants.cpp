// A test of the tests: puts one fault at a time into the kernels, such as a missing barrier, a loosened wait for copies
// or a missing bound, and checks that results or memory accesses reveal it. The places are found by running the
// kernels, so that new places are covered without a change here.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>

#include "cuda/dropout.h"
#include "cuda/emulator.h"
#include "cuda/kernel_memory.h"
#include "cuda/layer_case.h"
#include "cuda/metric_case.h"
#include "cuda/projection_case.h"
#include "cuda/residual_norm.h"
#include "cuda/step_case.h"

namespace metaformer {

namespace {

using cuda::MetricElement;
using cuda::MetricForm;
using emulator::Copies;
using emulator::Order;

// The short backward pass: several sequences in a block, own values, dropout, masks; heads that do not fill their
// tiles.
std::vector<MetricCase> short_cases() {
  MetricCase shared = {.batch = 3, .heads = 1, .tokens = 70, .width = 24, .dropout = 0.3, .short_parts = 2};
  MetricCase own = {.causal = false,
                    .mask = Mask::padding,
                    .layout = Layout::unaligned,
                    .batch = 2,
                    .heads = 1,
                    .tokens = 67,
                    .width = 40,
                    .values = true,
                    .short_parts = 1};
  MetricCase identity = {.form = MetricForm::identity,
                         .layout = Layout::contiguous,
                         .batch = 2,
                         .heads = 1,
                         .tokens = 41,
                         .width = 40,
                         .short_parts = 1};
  return {shared, own, identity};
}

std::vector<MetricCase> cases() {
  std::vector<MetricCase> list;
  for (const auto element : {MetricElement::bf16, MetricElement::tf32}) {
    const MetricCase usual = {.element = element, .batch = 1, .tokens = 141, .width = 24};
    MetricCase padded = usual;
    padded.mask = Mask::padding;
    padded.causal = false;
    padded.distance = true;
    padded.layout = Layout::unaligned;
    MetricCase diagonal = padded;
    diagonal.mask = Mask::none;
    diagonal.layout = Layout::contiguous;
    diagonal.form = MetricForm::diagonal;
    MetricCase identity = diagonal;
    identity.width = 40;
    identity.form = MetricForm::identity;
    identity.distance = false;
    // More tiles of tokens than parts of the metric's gradient, and a form that does not fill its last block of
    // threads.
    MetricCase many = {.element = element,
                       .causal = false,
                       .layout = Layout::contiguous,
                       .batch = 40,
                       .heads = 1,
                       .tokens = 33,
                       .width = 24};
    list.insert(list.end(), {usual, padded, diagonal, identity, many});
  }
  list.front().dropout = 0.3;
  MetricCase more_keys = list[1], fewer_keys = list[0];
  more_keys.keys = 203;
  fewer_keys.keys = 70;
  // The metric of a wide head is loaded in parts; in fp32 rows of a block stay in shared memory.
  MetricCase wide = {.element = MetricElement::tf32, .batch = 1, .heads = 1, .tokens = 33, .width = 104},
             wide_fp32 = wide;
  wide_fp32.element = MetricElement::fp32;
  list.insert(list.end(), {more_keys, fewer_keys, wide, wide_fp32});
  // Own values with a metric, with a distance, and with scaled dot product attention.
  for (auto with_values : {list[0], list[1], more_keys}) {
    with_values.values = true;
    list.push_back(with_values);
  }
  MetricCase scaled_dot_product = {.form = MetricForm::identity, .batch = 1, .tokens = 90, .width = 40, .keys = 141};
  scaled_dot_product.values = true;
  list.push_back(scaled_dot_product);
  const auto of_short_contexts = short_cases();
  list.insert(list.begin(), of_short_contexts.begin(), of_short_contexts.end());
  return list;
}

// Several tiles per block; columns of a wide head that two warps share, and values that are p; no norm.
std::vector<ProjectionCase> projection_cases() {
  return {{.batch = 3, .heads = 1, .tokens = 70, .width = 24, .parts = 2},
          {.form = MetricForm::diagonal, .own_values = false, .batch = 1, .tokens = 40, .width = 104},
          {.form = MetricForm::identity,
           .normalised = false,
           .layout = Layout::contiguous,
           .batch = 3,
           .heads = 1,
           .tokens = 33,
           .width = 40,
           .parts = 1}};
}

const std::vector<emulator::Schedule> schedules = {{Order::first_come, Copies::eager, 1},
                                                   {Order::last_come, Copies::lazy, 2},
                                                   {Order::random, Copies::random, 3},
                                                   {Order::random, Copies::lazy, 4},
                                                   {Order::first_come, Copies::lazy, 5, Order::last_come}};

// The stored results of dropout of a few runs, and the bytes after them. The entries end at a page without access, or
// are aligned.
std::vector<unsigned char> run_dropout(bool aligned) {
  constexpr std::int64_t run = 37, runs = 3;
  constexpr std::size_t bytes = run * runs * sizeof(std::uint16_t), aligned_bytes = (bytes + 15) / 16 * 16;
  const KernelMemory x(aligned ? aligned_bytes : bytes), y(aligned ? aligned_bytes : bytes);
  const KernelMemory key(sizeof(std::int64_t)), starts(runs * sizeof(std::int64_t));
  for (std::size_t i = 0; i < bytes; ++i) x.data()[i] = static_cast<unsigned char>(i % 2 == 0 ? 3 * i : 0x40);
  std::memset(key.data(), 5, sizeof(std::int64_t));
  std::memset(starts.data(), 6, runs * sizeof(std::int64_t));
  cuda::dropout({.element = cuda::RowElement::bf16,
                 .x = x.data(),
                 .y = y.data(),
                 .count = run * runs,
                 .probability = 0.3,
                 .key = reinterpret_cast<const std::int64_t*>(key.data()),
                 .places = {.run = run, .starts = reinterpret_cast<const std::int64_t*>(starts.data())}},
                nullptr);
  return {y.data(), y.data() + (aligned ? aligned_bytes : bytes)};
}

// A row of four numbers more than a team's groups have, or of one more; the last team of a block has no row.
struct NormCase {
  int width;
  cuda::RowElement element;
  bool aligned;  // if not, the arrays end at a page without access
};
const std::vector<NormCase> norm_cases = {{132, cuda::RowElement::bf16, true},
                                          {131, cuda::RowElement::bf16, false},
                                          {130, cuda::RowElement::fp32, false},
                                          {1028, cuda::RowElement::fp32, true},
                                          {1029, cuda::RowElement::fp16, false}};

using Bytes = std::vector<unsigned char>;

// The stored results of residual sum and norm, forward and backward.
std::vector<Bytes> run_norm(const NormCase& c) {
  constexpr std::int64_t rows = 13, run = 5;
  const auto size = c.element == cuda::RowElement::fp32 ? sizeof(float) : sizeof(std::uint16_t);
  const auto width = static_cast<std::size_t>(c.width), count = rows * width;
  const auto memory = [&](std::size_t bytes) {
    return std::make_unique<KernelMemory>(c.aligned ? (bytes + 15) / 16 * 16 : bytes);
  };
  const auto floats = [&](std::size_t numbers, float offset) {
    auto made = memory(numbers * sizeof(float));
    for (std::size_t i = 0; i < numbers; ++i) made->floats()[i] = offset + 0.01F * static_cast<float>((i * 37) % 100);
    return made;
  };
  // 0x3c, 0x3d and so on as the upper byte are numbers near 1 in every type.
  const auto narrow = [&] {
    auto made = memory(count * size);
    for (std::size_t i = 0; i < count * size; ++i)
      made->data()[i] = static_cast<unsigned char>(i % size == size - 1 ? 0x3c + i / size % 3 : 29 * i);
    return made;
  };
  const auto x = floats(count, 0.5F), dsum = floats(count, -0.3F), gain = floats(width, 1), bias = floats(width, -1);
  const auto y = narrow(), dn = narrow(), key = memory(sizeof(std::int64_t));
  std::memset(key->data(), 5, sizeof(std::int64_t));
  const auto sum = memory(4 * count), n = memory(size * count), mean = memory(4 * rows), factor = memory(4 * rows),
             dx = memory(4 * count), dy = memory(size * count), dgain = memory(4 * width), dbias = memory(4 * width),
             partial = memory(4 * static_cast<std::size_t>(cuda::residual_norm_partial_sums(rows, c.width)));
  const cuda::ResidualNorm forward{.rows = rows,
                                   .width = c.width,
                                   .y_element = c.element,
                                   .n_element = c.element,
                                   .x = x->floats(),
                                   .y = y->data(),
                                   .probability = 0.3,
                                   .key = reinterpret_cast<const std::int64_t*>(key->data()),
                                   .places = {.run = run * c.width},
                                   .centred = true,
                                   .epsilon = 1e-5F,
                                   .gain = gain->floats(),
                                   .bias = bias->floats(),
                                   .sum = sum->floats(),
                                   .n = n->data(),
                                   .mean = mean->floats(),
                                   .factor = factor->floats()};
  cuda::residual_norm(forward, nullptr);
  cuda::residual_norm_backward({.forward = forward,
                                .dn = dn->data(),
                                .dsum = dsum->floats(),
                                .dx = dx->floats(),
                                .dy = dy->data(),
                                .dgain = dgain->floats(),
                                .dbias = dbias->floats(),
                                .partial = partial->floats()},
                               nullptr);
  const auto bytes = [&](const KernelMemory& of, std::size_t used) {
    return Bytes(of.data(), of.data() + (c.aligned ? (used + 15) / 16 * 16 : used));
  };
  return {bytes(*sum, 4 * count), bytes(*n, size * count),  bytes(*mean, 4 * rows),   bytes(*factor, 4 * rows),
          bytes(*dx, 4 * count),  bytes(*dy, size * count), bytes(*dgain, 4 * width), bytes(*dbias, 4 * width)};
}

std::vector<MetricResult> expected;
std::vector<std::vector<Bytes>> expected_norms;
std::vector<unsigned char> expected_dropped[2];
std::vector<ProjectionResult> expected_projections;
std::vector<std::uint32_t> expected_steps;   // of the kernels of the loss and of the update
std::vector<std::uint32_t> expected_layers;  // of those between matrix products
layer_cases::EmbeddingResult expected_many;

bool projections_as_expected() {
  const auto list = projection_cases();
  for (std::size_t i = 0; i < list.size(); ++i)
    if (run_projection(list[i]) != expected_projections[i]) return false;
  return true;
}

bool norms_as_expected() {
  for (std::size_t i = 0; i < norm_cases.size(); ++i)
    if (run_norm(norm_cases[i]) != expected_norms[i]) return false;
  return true;
}

// So many tokens that the chunks in which they are sorted have several rounds.
layer_cases::EmbeddingResult run_many_tokens() {
  return layer_cases::run_embedding_gradient({.vocabulary = 65, .width = 1, .ids = layer_cases::drawn_ids(33'000, 65)});
}

// Whether every case gives the expected results. The longest one comes last, because the others find most faults.
bool all_as_expected() {
  for (const bool aligned : {false, true})
    if (run_dropout(aligned) != expected_dropped[aligned]) return false;
  for (const auto& schedule : schedules) {
    emulator::set_schedule(schedule);
    if (step_cases::run_step_kernels() != expected_steps) return false;
    if (layer_cases::run_layer_kernels() != expected_layers) return false;
    if (!norms_as_expected() || !projections_as_expected()) return false;
  }
  const auto list = cases();
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (const auto& schedule : schedules) {
      emulator::set_schedule(schedule);
      if (run_kernels(list[i]) != expected[i]) return false;
    }
  }
  for (const auto& schedule : schedules) {
    emulator::set_schedule(schedule);
    if (run_many_tokens() != expected_many) return false;
  }
  return true;
}

// Tests the fault in its own process, which may crash.
bool is_caught(const emulator::Site& site) {
  const auto child = ::fork();
  if (child == 0) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::alarm(120);
    emulator::break_at(site);
    try {
      ::_exit(all_as_expected() ? 0 : 1);
    } catch (const std::exception&) {
      ::_exit(2);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Indexed by emulator::Fault.
constexpr const char* names[] = {
    "barrier left out", "wait loosened",       "bound dropped",   "alignment taken for granted",
    "draw shifted",     "turn not waited for", "number not taken"};

int run() {
  emulator::set_schedule({});
  for (const auto& c : cases()) expected.push_back(run_kernels(c));
  for (const bool aligned : {false, true}) expected_dropped[aligned] = run_dropout(aligned);
  for (const auto& c : norm_cases) expected_norms.push_back(run_norm(c));
  expected_steps = step_cases::run_step_kernels();
  expected_layers = layer_cases::run_layer_kernels();
  expected_many = run_many_tokens();
  for (const auto& c : projection_cases()) expected_projections.push_back(run_projection(c));
  if (!all_as_expected()) {
    std::cerr << "the kernels as they are do not give the same bits under every schedule\n";
    return 1;
  }
  int survivors = 0;
  const auto& sites = emulator::sites();
  for (const auto& site : sites) {
    if (is_caught(site)) continue;
    ++survivors;
    std::cerr << site.file << ":" << site.line << ": " << names[static_cast<int>(site.fault)]
              << ", and no test notices\n";
  }
  std::cout << sites.size() << " faults, " << survivors << " not caught\n";
  return survivors > 0 || sites.empty() ? 1 : 0;
}

}  // namespace

}  // namespace metaformer

int main() { return metaformer::run(); }
