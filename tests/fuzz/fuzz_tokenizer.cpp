// A tokenizer.json gives an Error or a tokenizer whose ids are within its vocabulary.

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "text/make_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace metaformer;
  try {
    const auto tokenizer = load_tokenizer({reinterpret_cast<const char*>(data), size}, "fuzz");
    std::vector<std::int32_t> ids;
    for (std::int64_t id = 0; id < std::min<std::int64_t>(tokenizer->vocabulary_size(), 50); ++id)
      ids.push_back(static_cast<std::int32_t>(id));
    for (const auto id : tokenizer->encode(tokenizer->decode(ids)))
      if (id < 0 || id >= tokenizer->vocabulary_size()) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
