// What a pretrained tokenizer makes of a text, for comparison with the library `tokenizers`.
//
//   encode_text TOKENIZER TEXT_FILE IDS_FILE
//
// Writes the ids as int32. Prints their number and the MB/s of a first and a second pass. Fails when they do not decode
// to the text.

#include <chrono>
#include <iostream>
#include <span>

#include "base/error.h"
#include "base/files.h"
#include "text/pretrained_tokenizer.h"

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

}  // namespace metaformer

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: encode_text TOKENIZER TEXT_FILE IDS_FILE\n";
    return 2;
  }
  try {
    return metaformer::encode(argv[1], argv[2], argv[3]);
  } catch (const metaformer::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
