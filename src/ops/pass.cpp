#include "ops/pass.h"

#include <c10/util/accumulate.h>

#include <numbers>

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

using torch::Tensor;

namespace {

Tensor shifted_right(const Tensor& x, int places) {
  return x.bitwise_right_shift(places).bitwise_and((std::int64_t{1} << (64 - places)) - 1);  // shifts in zeros
}

// The same as Rng::mix.
Tensor mixed(Tensor x) {
  x = x + static_cast<std::int64_t>(0x9e3779b97f4a7c15ULL);
  x = x.bitwise_xor(shifted_right(x, 30)) * static_cast<std::int64_t>(0xbf58476d1ce4e5b9ULL);
  x = x.bitwise_xor(shifted_right(x, 27)) * static_cast<std::int64_t>(0x94d049bb133111ebULL);
  return x.bitwise_xor(shifted_right(x, 31));
}

// The same as Rng::with_key(key).bits(index).
Tensor bits(const Tensor& key, const Tensor& index) { return mixed(key.bitwise_xor(mixed(index))); }

}  // namespace

Tensor random_normal(const RandomDraw& draw, torch::IntArrayRef sizes) {
  const auto number = torch::full({1}, static_cast<std::int64_t>(draw.number), draw.key.options());
  const auto seed = bits(draw.key, number);
  const auto pair_i2 = torch::arange(2 * c10::multiply_integers(sizes), draw.key.options()).view({-1, 2});
  const auto uniform_i2 = shifted_right(bits(seed, pair_i2), 11).to(torch::kDouble) * 0x1p-53;
  const auto radius = torch::sqrt(-2 * torch::log1p(-uniform_i2.select(1, 0)));
  return (radius * torch::cos(2 * std::numbers::pi * uniform_i2.select(1, 1))).to(torch::kFloat).view(sizes);
}

}  // namespace metaformer
