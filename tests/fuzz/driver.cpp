// Runs a libFuzzer target without libFuzzer: the seeds, then always the same mutations of them. The tests use it, so
// that they need no clang; scripts/fuzz.sh links the same targets with libFuzzer and sanitizers.
//
//   fuzz_TARGET SEED_FOLDER ITERATIONS

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::string> read_seeds(const std::filesystem::path& folder) {
  using Files = std::filesystem::directory_iterator;
  std::vector<std::string> seeds;
  for (const auto& path : std::set<std::filesystem::path>(Files(folder), Files())) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

std::vector<std::string> odd_words() {
  std::istringstream words("{ [ \" } ] : , -1 1e999 18446744073709551615 null &a *a \xff \xEF\xBB\xBF");
  std::vector<std::string> list{std::istream_iterator<std::string>(words), {}};
  list.insert(list.end(), {"\n", std::string(1, '\0')});
  return list;
}

void run(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int, char** argv) {
  const auto seeds = read_seeds(argv[1]), odd = odd_words();
  const auto iterations = std::stol(argv[2]);
  std::mt19937_64 random(1);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  const auto pick = [&](const std::vector<std::string>& from) { return from.at(below(from.size())); };
  const auto change = [&](std::string& text) {
    const auto at = below(text.size() + 1);
    switch (below(6)) {
      case 0:
        return void(text.insert(at, pick(odd)));
      case 1:
        return void(text.erase(at, below(8)));
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        return;
      case 3:
        return text.resize(at);
      case 4: {
        const auto other = pick(seeds);
        const auto from = below(other.size() + 1);
        return void(text.insert(at, other, from, below(32)));
      }
      default:
        for (auto copies = below(64); copies > 0; --copies) text.insert(at, pick(odd));
    }
  };
  for (const auto& seed : seeds) run(seed);
  for (long i = 0; i < iterations; ++i) {
    auto text = pick(seeds);
    for (auto changes = 1 + below(4); changes > 0; --changes) change(text);
    run(text);
  }
  std::cout << seeds.size() << " seeds and " << iterations << " mutations\n";
}
