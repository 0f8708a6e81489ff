// What a tokenizer makes of texts, for comparison with the library `tokenizers`.
//
//   encode_text TOKENIZER TEXT_FILE IDS_FILE
//
// Writes the ids as int32. Prints their number and the MB/s of a first and a second pass. Fails when they do not decode
// to the text.
//
//   encode_text TOKENIZER_JSON
//
// The tokenizer.json of a checkpoint. Reads a list of texts as JSON from standard input, and prints a list of the ids
// of each, or of the error in their place.

#include <chrono>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/files.h"
#include "base/utf8.h"
#include "text/make_tokenizer.h"

namespace metaformer {

static int encode(const std::string& folder, const std::string& text_file, const std::string& ids_file) {
  const auto tokenizer = read_pretrained_tokenizer(folder);
  const auto text = read_file(text_file, std::uintmax_t{1} << 32, ExitCode::data);
  std::vector<std::int32_t> ids;
  std::array<double, 2> seconds{};
  for (auto& pass : seconds) {
    const auto start = std::chrono::steady_clock::now();
    ids = tokenizer->encode(text);
    pass = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (tokenizer->decode(ids) != text) throw Error(ExitCode::failure, "the ids do not decode to the text");
  const auto bytes = std::as_bytes(std::span(ids));
  write_file_synced(ids_file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::cout << ids.size();
  for (const auto pass : seconds) std::cout << " " << static_cast<double>(text.size()) / 1e6 / pass;
  std::cout << "\n";
  return 0;
}

static int encode_list(const std::string& file) {
  const auto tokenizer = load_tokenizer(read_file(file, std::uintmax_t{1} << 32, ExitCode::data), file);
  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  auto all = nlohmann::json::array();
  for (const auto& text : nlohmann::json::parse(input)) {
    try {
      all.push_back(tokenizer->encode(without_byte_order_mark(text.get<std::string>())));
    } catch (const Error& error) {
      all.push_back(error.what());
    }
  }
  std::cout << all.dump() << "\n";
  return 0;
}

}  // namespace metaformer

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::cerr << "usage: encode_text TOKENIZER TEXT_FILE IDS_FILE, or encode_text TOKENIZER_JSON\n";
    return 2;
  }
  try {
    return argc == 2 ? metaformer::encode_list(argv[1]) : metaformer::encode(argv[1], argv[2], argv[3]);
  } catch (const metaformer::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
