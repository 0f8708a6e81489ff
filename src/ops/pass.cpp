#include "ops/pass.h"

#include "base/random.h"

namespace metaformer {

std::uint64_t RandomDraw::seed() const {
  return Rng::with_key(static_cast<std::uint64_t>(*key.const_data_ptr<std::int64_t>())).bits(number);
}

RandomDraw RandomStream::next() {
  TORCH_CHECK(key_.defined(), "a pass without random numbers was asked for some");
  return {key_, drawn_++, first_row_};
}

StepPasses::StepPasses(std::uint64_t seed, torch::Device device)
    : seed_(seed), key_(torch::zeros({1}, torch::TensorOptions().dtype(torch::kLong).device(device))) {}

void StepPasses::set_step(std::int64_t step) {
  key_.fill_(static_cast<std::int64_t>(Rng(seed_, RandomPurpose::dropout, static_cast<std::uint64_t>(step)).bits(0)));
}

Pass StepPasses::pass(std::int64_t first_row) const {
  return {.training = true, .random = RandomStream(key_, first_row)};
}

}  // namespace metaformer
