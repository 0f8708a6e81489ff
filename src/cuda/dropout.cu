#include "cuda/dropout.h"
#include "cuda/fragments.h"
#include "cuda/random_bits.h"

namespace metaformer::cuda {

namespace {

constexpr int threads = 256, per_thread = 8;

// The arguments and constants of every thread.
struct DropoutRule {
  Dropout in;
  DropRule drop;
  bool aligned;  // x and y, to 16 bytes
};

// Entries of 16 bytes, as they lie in memory: a thread that only converts them later need not wait for them earlier.
template <class Format>
struct Group {
  using Element = typename Format::Element;
  static constexpr int per_word = 4 / static_cast<int>(sizeof(Element)), size = 4 * per_word;
  unsigned words[4];

  // `count`: entries that exist; `whole`: all do, and are aligned.
  GPU_DEVICE void load(const Element* x, std::int64_t count, bool whole) {
    if (whole) return gpu::load_16(words, x);
    GPU_UNROLL
    for (int i = 0; i < size; ++i) {
      const auto entry = gpu::within(i < count) ? x[i] : Element(0);
      if constexpr (per_word == 1) {
        words[i] = gpu::bits_of(entry);
      } else {
        words[i / 2] = i % 2 == 0 ? entry : words[i / 2] | static_cast<unsigned>(entry) << 16;
      }
    }
  }

  GPU_DEVICE void store(Element* y, std::int64_t count, bool whole) const {
    if (whole) return gpu::store_16(y, words);
    GPU_UNROLL
    for (int i = 0; i < size; ++i)
      if (gpu::within(i < count)) y[i] = entry(i);
  }

  // Entry i becomes 0 where bit i of `dropped` is set.
  GPU_DEVICE void drop(unsigned dropped, float factor) {
    const auto left = [&](int i) { return (dropped >> i & 1) != 0 ? 0.0f : Format::to_float(entry(i)) * factor; };
    GPU_UNROLL
    for (int w = 0; w < 4; ++w) {
      if constexpr (per_word == 1) {
        words[w] = gpu::bits_of(left(w));
      } else {
        words[w] = pack<Format>(left(2 * w), left(2 * w + 1));
      }
    }
  }

 private:
  GPU_DEVICE Element entry(int i) const {
    if constexpr (per_word == 1) {
      return gpu::float_of(words[i]);
    } else {
      return static_cast<Element>(words[i / 2] >> (i % 2 * 16));
    }
  }
};

// dropped_at of entries from `first` on, of which `count` exist. Mostly they are one stretch. Otherwise each stretch
// overwrites the bits behind those of the one before.
template <int Size>
GPU_DEVICE unsigned dropped_from(const DropoutRule& rule, const PlaceBits& bits, std::int64_t first, int count) {
  unsigned dropped = 0;
  std::int64_t found = 0;
  GPU_DO_NOT_UNROLL
  do {
    const auto stretch = stretch_from(rule.in.places, first + found);
    const auto before = (1u << found) - 1;
    dropped = (dropped & before) | dropped_at<Size>(bits, rule.drop.limit, stretch.place) << found;
    found += stretch.count;
  } while (found < count);
  return dropped;
}

// Eight entries a thread, in groups of 16 bytes. Every thread computes the seed, which takes about a tenth of its
// instructions. If the threads of a block shared the seed, they would wait for it at a barrier. Runs are found by
// products with reciprocals (Divisor); in a grid with a row of blocks for each run, short runs would leave most threads
// without work, and runs that are no multiple of eight would not be aligned.
template <class Format>
GPU_KERNEL(threads)
dropout_kernel(const DropoutRule rule) {
  constexpr int size = Group<Format>::size, groups = per_thread / size;
  const auto& in = rule.in;
  const PlaceBits bits(in.key, rule.drop.mixed_number);
  GPU_UNROLL
  for (int g = 0; g < groups; ++g) {
    const auto first = ((gpu::block_index() * groups + g) * threads + gpu::thread_index()) * size;
    const auto count = in.count - first;
    if (!gpu::within(count > 0)) return;
    const bool whole = gpu::within(count >= size) && gpu::aligned(rule.aligned);
    Group<Format> group;
    group.load(static_cast<const typename Format::Element*>(in.x) + first, count, whole);
    group.drop(dropped_from<size>(rule, bits, first, count < size ? static_cast<int>(count) : size), rule.drop.factor);
    group.store(static_cast<typename Format::Element*>(in.y) + first, count, whole);
  }
}

template <class Format>
void launch(const DropoutRule& rule, void* stream) {
  constexpr int per_block = threads * per_thread;
  gpu::launch(dropout_kernel<Format>, (rule.in.count + per_block - 1) / per_block, threads, 0,
              static_cast<gpu::Stream>(stream), rule);
}

bool starts_at_16(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

}  // namespace

void dropout(const Dropout& arguments, void* stream) {
  if (arguments.count == 0) return;
  const DropoutRule rule{.in = arguments,
                         .drop = DropRule(arguments.probability, arguments.number),
                         .aligned = starts_at_16(arguments.x) && starts_at_16(arguments.y)};
  switch (arguments.element) {
    case RowElement::fp32:
      return launch<Fp32>(rule, stream);
    case RowElement::bf16:
      return launch<Bf16>(rule, stream);
    case RowElement::fp16:
      return launch<Fp16>(rule, stream);
  }
}

}  // namespace metaformer::cuda
