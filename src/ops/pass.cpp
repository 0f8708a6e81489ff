#include "ops/pass.h"

#include "base/random.h"

namespace metaformer {

std::uint64_t RandomDraw::seed() const {
  return Rng::with_key(static_cast<std::uint64_t>(*key.const_data_ptr<std::int64_t>())).bits(number);
}

RandomDraw RandomStream::next() {
  TORCH_CHECK(key_.defined(), "a pass without random numbers was asked for some");
  return {key_, drawn_++};
}

StepPasses::StepPasses(std::uint64_t seed, std::int64_t micro_batches, torch::Device device)
    : seed_(seed), keys_(torch::zeros({micro_batches}, torch::TensorOptions().dtype(torch::kLong).device(device))) {}

void StepPasses::set_step(std::int64_t step) {
  const Rng rng(seed_, RandomPurpose::dropout, static_cast<std::uint64_t>(step));
  for (std::int64_t micro = 0; micro < keys_.size(0); ++micro)
    keys_.narrow(0, micro, 1).fill_(static_cast<std::int64_t>(rng.bits(static_cast<std::uint64_t>(micro))));
}

Pass StepPasses::pass(std::int64_t micro_batch) const {
  return {.training = true, .random = RandomStream(keys_.narrow(0, micro_batch, 1))};
}

std::vector<Pass> StepPasses::consecutive(std::int64_t first, std::int64_t count) const {
  std::vector<Pass> passes;
  for (auto i = first; i < first + count; ++i) passes.push_back(pass(i));
  return passes;
}

}  // namespace metaformer
