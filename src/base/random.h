#pragma once
// Randomness as a pure function: a draw depends only on (seed, purpose, step, index), never on previous
// draws. Resuming, recomputing a layer and changing the number of processes therefore draw the same numbers.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace metaformer {

enum class RandomPurpose : std::uint64_t { initialisation = 1, batches, dropout, evaluation, sampling, noise, masking };

class Rng {
 public:
  Rng(std::uint64_t seed, RandomPurpose purpose, std::uint64_t step = 0)
      : key_(mix(mix(mix(seed) ^ static_cast<std::uint64_t>(purpose)) ^ step)) {}

  static constexpr Rng with_key(std::uint64_t key) { return Rng(key); }

  // 64 uniform bits.
  std::uint64_t bits(std::uint64_t index) const { return mix(key_ ^ mix(index)); }

  // Uniform in [0, 1), 53 bits.
  double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-53; }

  // Uniform in [0, n) for n > 0; the bias is below n / 2^64.
  std::uint64_t below(std::uint64_t index, std::uint64_t n) const {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits(index)) * n) >> 64);
  }

  // splitmix64's output function (Steele, Lea, Flood 2014): a bijection that scatters neighbours.
  static constexpr std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

 private:
  constexpr explicit Rng(std::uint64_t key) : key_(key) {}

  std::uint64_t key_;
};

// Permutes the values; every permutation is equally likely.
template <class T>
void shuffle(std::vector<T>& values, const Rng& rng) {
  for (auto left = values.size(); left > 1; --left) std::swap(values[left - 1], values[rng.below(left, left)]);
}

// A stable 64-bit hash of a name (FNV-1a), so that every parameter has a separate stream.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace metaformer
