#include "text/tokenizer.h"

#include <algorithm>

#include "base/utf8.h"

namespace metaformer {

std::vector<std::int32_t> Tokenizer::encode_sampled(std::string_view text, double, const Rng&) const {
  return encode(text);
}

std::int64_t count_unknown_characters(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                                      std::int64_t characters) {
  const auto unknown = tokenizer.unknown_id();
  if (!unknown || std::find(ids.begin(), ids.end(), *unknown) == ids.end()) return 0;
  std::vector<std::int64_t> lengths;  // by id
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    lengths.push_back(count_characters(tokenizer.decode(std::vector{id})));
  for (const auto id : ids)
    if (id != *unknown) characters -= lengths[static_cast<std::size_t>(id)];
  return characters;
}

}  // namespace metaformer
