#include "model/ngram_buckets.h"

namespace metaformer {

torch::Tensor ngram_buckets(const torch::Tensor& ids_bc, std::int64_t n, std::int64_t buckets,
                            const torch::Tensor& segments_bc) {
  // Two rounds of splitmix64 (Steele, Lea, Flood 2014) for every token.
  constexpr auto first_factor = static_cast<std::int64_t>(0xbf58476d1ce4e5b9ULL);
  constexpr auto second_factor = static_cast<std::int64_t>(0x94d049bb133111ebULL);
  const auto scatter = [](const torch::Tensor& x, std::int64_t factor, std::int64_t shift) {
    const auto product = x * factor;
    return product.bitwise_xor(product.bitwise_right_shift(shift));
  };
  const auto length = ids_bc.size(1);
  auto hash_bc = torch::full_like(ids_bc, n);
  for (std::int64_t back = n - 1; back >= 0; --back) {
    // The token `back` places earlier; -1 before the first one.
    const auto shifted = [&](const torch::Tensor& x_bc) {
      return torch::constant_pad_nd(x_bc, {back, 0}, -1).narrow(1, 0, length);
    };
    auto earlier_bc = shifted(ids_bc);
    if (segments_bc.defined()) earlier_bc = earlier_bc.masked_fill(shifted(segments_bc) != segments_bc, -1);
    hash_bc = scatter(scatter(hash_bc + earlier_bc, first_factor, 30), second_factor, 29);
  }
  return hash_bc.remainder(buckets);
}

}  // namespace metaformer
