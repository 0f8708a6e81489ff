#include <cmath>

#include "cuda/cross_entropy.h"
#include "cuda/sums.h"

namespace metaformer::cuda {

namespace {

constexpr int threads = 256, warps = threads / gpu::warp_size;

bool is_row_of_warp(std::int64_t width) { return width <= 1024; }

// The kernels' arguments, with numbers that do not change from row to row.
struct LossRule {
  CrossEntropy in;
  float target_part, share;  // of the target and of every token in q: 1 - smoothing, smoothing / width
};

// A row's elements: groups of 16 bytes at aligned addresses, and single ones before and behind them.
template <class Format>
struct Row {
  using Element = typename Format::Element;
  static constexpr int size = 16 / static_cast<int>(sizeof(Element));  // of a group

  const Element* x;
  Element* gradient;  // null: not needed
  int width, head, groups;

  GPU_DEVICE Row(const CrossEntropy& in, std::int64_t row)
      : x(static_cast<const Element*>(in.logits) + row * in.stride),
        gradient(in.gradient == nullptr ? nullptr : static_cast<Element*>(in.gradient) + row * in.width),
        width(static_cast<int>(in.width)) {
    const auto start = reinterpret_cast<std::uintptr_t>(x);
    const bool in_step = gradient == nullptr || (reinterpret_cast<std::uintptr_t>(gradient) - start) % 16 == 0;
    head = static_cast<int>((16 - start % 16) % 16 / sizeof(Element));
    if (!gpu::aligned(in_step)) head = width;
    groups = (width - head) / size;  // 0 also if the row ends within the head
  }

  GPU_DEVICE int singles() const { return width - groups * size; }
  GPU_DEVICE int single(int i) const { return i < head ? i : i + groups * size; }
  GPU_DEVICE int group(int i) const { return head + i * size; }
  GPU_DEVICE float value(std::int64_t i) const { return Format::to_float(x[i]); }

  GPU_DEVICE void load(float (&values)[size], int first) const {
    unsigned words[4];
    gpu::load_16(words, x + first);
    GPU_UNROLL
    for (int i = 0; i < size; ++i) {
      if constexpr (size == 4) {
        values[i] = gpu::float_of(words[i]);
      } else {
        values[i] = Format::to_float(static_cast<Element>(words[i / 2] >> (i % 2 * 16)));
      }
    }
  }
  GPU_DEVICE void store(const float (&values)[size], int first) const {
    unsigned words[4];
    GPU_UNROLL
    for (int w = 0; w < 4; ++w) {
      if constexpr (size == 4) {
        words[w] = gpu::bits_of(values[w]);
      } else {
        words[w] = pack<Format>(values[2 * w], values[2 * w + 1]);
      }
    }
    gpu::store_16(gradient + first, words);
  }
};

// e^x. The difference of logits is rounded before it is multiplied: a product of a large logit would lose digits.
GPU_DEVICE float exponential(float x) {
  constexpr float log2_e = 1.44269504f;
  return gpu::exp2_approximate(x * log2_e);
}

// The sum of e^(x - greatest) over some logits, in one pass.
struct Softmax {
  float greatest = -INFINITY, sum = 0, logits = 0;

  // What is subtracted from logits: -infinity minus itself would be NaN.
  static GPU_DEVICE float reference(float greatest) { return greatest == -INFINITY ? 0 : greatest; }

  GPU_DEVICE void relate_to(float new_greatest) {
    sum *= exponential(greatest - reference(new_greatest));
    greatest = new_greatest;
  }

  template <int Count>
  GPU_DEVICE void add(const float (&x)[Count]) {
    float larger = greatest;
    GPU_UNROLL
    for (int i = 0; i < Count; ++i) larger = gpu::maximum(larger, x[i]);
    relate_to(larger);
    GPU_UNROLL
    for (int i = 0; i < Count; ++i) {
      sum += exponential(x[i] - reference(greatest));
      logits += x[i];
    }
  }
};

// The softmax's numbers of a whole row, for each of the `Threads` threads that share it. `shared`: three floats for
// each warp.
template <int Threads, class Format>
GPU_DEVICE Softmax softmax_of(const Row<Format>& row, float* shared) {
  const int thread = gpu::thread_index() % Threads;
  Softmax softmax;
  for (int i = thread; gpu::within(i < row.groups); i += Threads) {
    float x[Row<Format>::size];
    row.load(x, row.group(i));
    softmax.add(x);
  }
  for (int i = thread; gpu::within(i < row.singles()); i += Threads) {
    const float x[1] = {row.value(row.single(i))};
    softmax.add(x);
  }
  if constexpr (Threads == gpu::warp_size) {
    softmax.relate_to(warp_maximum(softmax.greatest));
    softmax.sum = warp_sum(softmax.sum);
    softmax.logits = warp_sum(softmax.logits);
  } else {
    softmax.relate_to(block_maximum<warps>(softmax.greatest, shared));
    softmax.sum = block_sum<warps>(softmax.sum, shared + warps);
    softmax.logits = block_sum<warps>(softmax.logits, shared + 2 * warps);
  }
  return softmax;
}

template <class Format>
GPU_DEVICE float loss_of(const LossRule& rule, const Row<Format>& row, const Softmax& softmax, std::int64_t target) {
  double loss = static_cast<double>(softmax.greatest) + static_cast<double>(gpu::logarithm(softmax.sum));
  loss -= (1 - rule.in.smoothing) * static_cast<double>(row.value(target));
  if (rule.in.smoothing > 0)
    loss -= rule.in.smoothing * static_cast<double>(softmax.logits) / static_cast<double>(row.width);
  return static_cast<float>(loss);
}

// `gradient_of`: of the token and its logit.
template <int Threads, class Format, class Gradient>
GPU_DEVICE void store_gradient(const Row<Format>& row, const Gradient& gradient_of) {
  constexpr int size = Row<Format>::size;
  const int thread = gpu::thread_index() % Threads;
  for (int i = thread; gpu::within(i < row.groups); i += Threads) {
    float x[size];
    row.load(x, row.group(i));
    GPU_UNROLL
    for (int e = 0; e < size; ++e) x[e] = gradient_of(row.group(i) + e, x[e]);
    row.store(x, row.group(i));
  }
  for (int i = thread; gpu::within(i < row.singles()); i += Threads) {
    const auto token = row.single(i);
    row.gradient[token] = Format::from_float(gradient_of(token, row.value(token)));
  }
}

// Stores the row's gradient, if that is needed, and returns its loss. The row is read once from memory, and again from
// the caches.
template <int Threads, class Format>
GPU_DEVICE float row_of(const LossRule& rule, std::int64_t number, float* shared) {
  const Row<Format> row(rule.in, number);
  const auto target = rule.in.targets[number];
  if (target < 0) {
    if (row.gradient != nullptr) store_gradient<Threads>(row, [](int, float) { return 0.0f; });
    return 0;
  }
  auto softmax = softmax_of<Threads>(row, shared);
  const bool exists = gpu::within(target < row.width);
  if (!exists) softmax.sum = NAN;
  if (row.gradient != nullptr) {
    const float factor = *rule.in.factor, reference = Softmax::reference(softmax.greatest), part = 1 / softmax.sum;
    store_gradient<Threads>(row, [&](int token, float x) {
      const float q = rule.share + (token == target ? rule.target_part : 0);
      return (exponential(x - reference) * part - q) * factor;
    });
  }
  return exists ? loss_of(rule, row, softmax, target) : softmax.sum;
}

// `Threads` threads share a row: a warp, or a block. A row of a wide vocabulary has work for a block, and then blocks
// enough run at a time that the rows between their two passes stay in the L2 cache.
template <class Format, int Threads>
GPU_KERNEL(threads)
cross_entropy_kernel(const LossRule rule) {
  constexpr int rows_of_block = threads / Threads;
  if (rule.in.computed != nullptr && *rule.in.computed == *rule.in.factor) return;
  GPU_SHARED_MEMORY(memory);
  auto* shared = reinterpret_cast<float*>(memory);
  auto* losses = shared + 3 * warps;
  const auto row = gpu::block_index() * rows_of_block + gpu::thread_index() / Threads;
  const float loss = gpu::within(row < rule.in.rows) ? row_of<Threads, Format>(rule, row, shared) : 0;
  if (rule.in.partial == nullptr) return;
  if (gpu::thread_index() % Threads == 0) losses[gpu::thread_index() / Threads] = loss;
  gpu::sync_threads();
  if (gpu::thread_index() != 0) return;
  float sum = 0;
  GPU_UNROLL
  for (int i = 0; i < rows_of_block; ++i) sum += losses[i];
  rule.in.partial[gpu::block_index()] = sum;
}

GPU_KERNEL(threads) cross_entropy_sum_kernel(const float* partial, std::int64_t count, float* loss) {
  GPU_SHARED_MEMORY(memory);
  const double sum = sum_of<threads>(partial, count, reinterpret_cast<double*>(memory));
  if (gpu::thread_index() == 0) *loss = static_cast<float>(sum);
}

template <class Format>
void launch(const LossRule& rule, gpu::Stream stream) {
  const auto& in = rule.in;
  const auto blocks = cross_entropy_parts(in.rows, in.width);
  constexpr int shared_bytes = 4 * warps * static_cast<int>(sizeof(float));
  gpu::launch(
      is_row_of_warp(in.width) ? cross_entropy_kernel<Format, gpu::warp_size> : cross_entropy_kernel<Format, threads>,
      blocks, threads, shared_bytes, stream, rule);
}

void launch(const LossRule& rule, gpu::Stream stream) {
  switch (rule.in.element) {
    case RowElement::fp32:
      return launch<Fp32>(rule, stream);
    case RowElement::bf16:
      return launch<Bf16>(rule, stream);
    case RowElement::fp16:
      return launch<Fp16>(rule, stream);
  }
}

}  // namespace

std::int64_t cross_entropy_parts(std::int64_t rows, std::int64_t width) {
  return is_row_of_warp(width) ? (rows + warps - 1) / warps : rows;
}

void cross_entropy(const CrossEntropy& arguments, void* given_stream) {
  auto* stream = static_cast<gpu::Stream>(given_stream);
  const LossRule rule{.in = arguments,
                      .target_part = static_cast<float>(1 - arguments.smoothing),
                      .share = static_cast<float>(arguments.smoothing / static_cast<double>(arguments.width))};
  if (arguments.rows > 0) launch(rule, stream);
  if (arguments.loss == nullptr) return;
  gpu::launch(cross_entropy_sum_kernel, 1, threads, threads * static_cast<int>(sizeof(double)), stream,
              static_cast<const float*>(arguments.partial), cross_entropy_parts(arguments.rows, arguments.width),
              arguments.loss);
}

}  // namespace metaformer::cuda
