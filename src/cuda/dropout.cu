#include "cuda/dropout.h"
#include "cuda/fragments.h"

namespace metaformer::cuda {

namespace {

constexpr int threads = 256;

// What every element's thread computes with.
struct DropoutRule {
  Dropout in;
  std::uint32_t limit;  // bits below it: dropped
  float factor;
};

// splitmix64's output function, as in base/random.h.
GPU_DEVICE std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// As in base/vector_math.h.
GPU_DEVICE std::uint32_t scrambled(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

GPU_DEVICE std::uint32_t bits_at(std::uint64_t seed, std::int64_t place) {
  const auto low = scrambled(static_cast<std::uint32_t>(seed));
  const auto high = scrambled(static_cast<std::uint32_t>(seed >> 32) ^ low);
  const auto further = high ^ static_cast<std::uint32_t>(static_cast<std::uint64_t>(place) >> 32);
  return scrambled(scrambled(static_cast<std::uint32_t>(place) + low) ^ further);
}

// One thread per element.
template <class Format>
GPU_KERNEL(threads)
dropout_kernel(const DropoutRule rule) {
  const auto& in = rule.in;
  const auto place = gpu::block_index() * threads + gpu::thread_index();
  if (!gpu::within(place < in.count)) return;
  const auto seed = mixed(static_cast<std::uint64_t>(*in.key) ^ mixed(in.number));
  const auto x = Format::to_float(static_cast<const typename Format::Element*>(in.x)[place]);
  const float y = bits_at(seed, place) < rule.limit ? 0.0f : x * rule.factor;
  static_cast<typename Format::Element*>(in.y)[place] = Format::from_float(y);
}

template <class Format>
void launch(const DropoutRule& rule, void* stream) {
  gpu::launch(dropout_kernel<Format>, (rule.in.count + threads - 1) / threads, threads, 0,
              static_cast<gpu::Stream>(stream), rule);
}

}  // namespace

void dropout(const Dropout& arguments, void* stream) {
  if (arguments.count == 0) return;
  const DropoutRule rule{.in = arguments,
                         .limit = static_cast<std::uint32_t>(arguments.probability * 0x1p32),
                         .factor = static_cast<float>(1 / (1 - arguments.probability))};
  switch (arguments.element) {
    case DropoutElement::fp32:
      return launch<Fp32>(rule, stream);
    case DropoutElement::bf16:
      return launch<Bf16>(rule, stream);
    case DropoutElement::fp16:
      return launch<Fp16>(rule, stream);
  }
}

}  // namespace metaformer::cuda
