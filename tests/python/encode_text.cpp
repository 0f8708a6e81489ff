// The ids of texts, for comparison with the library `tokenizers`.
//
//   encode_text TOKENIZER
//
// TOKENIZER is the folder of a pretrained tokenizer, or the tokenizer.json of a checkpoint. Reads a list of texts as
// JSON from standard input, and prints a list with the ids or the error message of each text. Fails if ids of a
// pretrained tokenizer do not decode to their text, or differ in a second pass, which finds words in its cache.

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/utf8.h"
#include "text/make_tokenizer.h"

int main(int, char** argv) {
  using namespace metaformer;
  const std::string path = argv[1];
  const bool is_pretrained = std::filesystem::is_directory(path);
  const auto tokenizer = is_pretrained ? read_pretrained_tokenizer(path)
                                       : load_tokenizer(read_file(path, std::uintmax_t{1} << 32, ExitCode::data), path);
  auto all = nlohmann::json::array();
  for (const auto& item : nlohmann::json::parse(std::cin)) {
    const auto text = item.get<std::string>();
    try {
      const auto whole = is_pretrained ? std::string_view(text) : without_byte_order_mark(text);
      const auto ids = tokenizer->encode(whole);
      if (is_pretrained && (tokenizer->decode(ids) != text || tokenizer->encode(whole) != ids)) return 1;
      all.push_back(ids);
    } catch (const Error& error) {
      all.push_back(error.what());
    }
  }
  std::cout << all << "\n";
}
