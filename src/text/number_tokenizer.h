#pragma once
// The numbers 0 ... count - 1 as tokens with the same ids, for lists to be sorted.

#include "text/tokenizer.h"

namespace metaformer {

class NumberTokenizer : public Tokenizer {
 public:
  static constexpr std::string_view kind = "number";
  static constexpr std::int64_t largest_count = 1'000'000;

  // 1 <= count <= largest_count.
  explicit NumberTokenizer(std::int64_t count) : count_(count) {}

  std::int64_t vocabulary_size() const override { return count_; }

  // Reads numbers separated by commas or white space: "2 0 1", "2,0,1", "2, 0, 1".
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string token_separator() const override { return " "; }
  nlohmann::ordered_json to_json() const override;

 private:
  std::int32_t id(std::string_view number) const;

  std::int64_t count_;
};

}  // namespace metaformer
