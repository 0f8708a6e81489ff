// A tokenizer.json of the library `tokenizers` gives an Error or a tokenizer that restores every text.

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "text/byte_level_bpe.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace metaformer;
  const std::string text = "ab's <|e|> 1984\n\n  \u81EA\u7136'T ab";
  try {
    const ByteLevelBpeTokenizer tokenizer({reinterpret_cast<const char*>(data), size}, 0, "fuzz");
    const auto ids = tokenizer.encode(text);
    for (const auto id : ids)
      if (id < 0 || id >= tokenizer.vocabulary_size()) std::abort();
    if (tokenizer.decode(ids) != text) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
