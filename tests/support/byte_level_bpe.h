#pragma once
// A byte-level BPE tokenizer with random rules.

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "text/byte_level_bpe.h"

namespace metaformer {

// Merges in order. Each joins two tokens, which are bytes or results of earlier merges, to one of at most 8 bytes.
struct RandomMerges {
  std::vector<std::string> tokens;  // as bytes, by id
  std::vector<std::array<std::int32_t, 3>> rules;

  // `alphabet`: the bytes that can be merged.
  RandomMerges(std::uint64_t seed, std::size_t count, const std::string& alphabet) {
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    const Rng rng(seed, RandomPurpose::sampling);
    std::vector<std::int32_t> usable;
    for (const char c : alphabet) usable.push_back(static_cast<unsigned char>(c));
    std::set<std::string> known(tokens.begin(), tokens.end());
    for (std::uint64_t draw = 0; rules.size() < count; draw += 2) {
      const auto left = usable[rng.below(draw, usable.size())], right = usable[rng.below(draw + 1, usable.size())];
      const auto merged = tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
      if (merged.size() > 8 || !known.insert(merged).second) continue;
      rules.push_back({left, right, static_cast<std::int32_t>(tokens.size())});
      usable.push_back(rules.back()[2]);
      tokens.push_back(merged);
    }
  }

  nlohmann::json vocabulary() const {
    nlohmann::json json;
    for (std::size_t id = 0; id < tokens.size(); ++id) json[to_byte_level(tokens[id])] = id;
    return json;
  }

  // The merges as "a b", in the characters of the files.
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const auto& [left, right, merged] : rules)
      lines.push_back(to_byte_level(tokens[static_cast<std::size_t>(left)]) + " " +
                      to_byte_level(tokens[static_cast<std::size_t>(right)]));
    return lines;
  }

  // A tokenizer.json like GPT-2's.
  nlohmann::json file() const {
    return {{"version", "1.0"},
            {"added_tokens", nlohmann::json::array()},
            {"normalizer", nullptr},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
            {"model", {{"type", "BPE"}, {"vocab", vocabulary()}, {"merges", lines()}}}};
  }
};

}  // namespace metaformer
