#include "cuda/dropout.h"
#include "cuda/fragments.h"
#include "cuda/random_bits.h"

namespace metaformer::cuda {

namespace {

constexpr int threads = 256;

// What every element's thread computes with.
struct DropoutRule {
  Dropout in;
  std::uint32_t limit;  // bits below it: dropped
  float factor;
};

// One thread per element.
template <class Format>
GPU_KERNEL(threads)
dropout_kernel(const DropoutRule rule) {
  const auto& in = rule.in;
  const auto entry = gpu::block_index() * threads + gpu::thread_index();
  if (!gpu::within(entry < in.count)) return;
  const auto x = Format::to_float(static_cast<const typename Format::Element*>(in.x)[entry]);
  const auto place = first_place(in.places, entry / in.places.run) + entry % in.places.run;
  const auto bits = PlaceBits(in.key, in.number).at(place);
  static_cast<typename Format::Element*>(in.y)[entry] = Format::from_float(bits < rule.limit ? 0.0f : x * rule.factor);
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
