// Runs a libFuzzer target without libFuzzer: the seeds, then mutations of them, always the same ones. For the tests,
// which need no clang; scripts/fuzz.sh links the same targets with libFuzzer and sanitizers.
//
//   fuzz_TARGET SEED_FOLDER [ITERATIONS]

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::string> read_seeds(const std::filesystem::path& folder) {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

const std::vector<std::string> odd = [] {
  std::istringstream words("{ [ \" } ] : , -1 1e999 18446744073709551615 null &a *a \xff \xEF\xBB\xBF");
  std::vector<std::string> list{std::istream_iterator<std::string>(words), {}};
  list.insert(list.end(), {"\n", std::string(1, '\0')});
  return list;
}();

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& seeds) : seeds_(seeds) {}

  std::string next() {
    auto text = pick(seeds_);
    for (auto changes = 1 + below(4); changes > 0; --changes) change(text);
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void change(std::string& text) {
    const auto at = below(text.size() + 1);
    switch (below(6)) {
      case 0:
        text.insert(at, pick(odd));
        break;
      case 1:
        text.erase(at, below(8));
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 3:
        text.resize(at);
        break;
      case 4: {
        const auto& other = pick(seeds_);
        const auto from = below(other.size() + 1);
        text.insert(at, other.substr(from, below(32)));
        break;
      }
      case 5:
        for (auto copies = below(64); copies > 0; --copies) text.insert(at, pick(odd));
        break;
    }
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_{1};
};

void run(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: fuzz_TARGET SEED_FOLDER [ITERATIONS]\n";
    return 2;
  }
  const auto seeds = read_seeds(argv[1]);
  if (seeds.empty()) return 2;
  for (const auto& seed : seeds) run(seed);
  Mutator mutator(seeds);
  const long iterations = argc > 2 ? std::atol(argv[2]) : 10'000;
  for (long i = 0; i < iterations; ++i) run(mutator.next());
  std::cout << seeds.size() << " seeds and " << iterations << " mutations\n";
}
