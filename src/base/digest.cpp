#include "base/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"

namespace metaformer {

namespace {

// OpenSSL counts in int. Pieces are multiples of 3 bytes, so that their encodings can be concatenated.
constexpr std::size_t bytes_at_once = 3 << 20;

const unsigned char* as_bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* as_bytes(std::string& text, std::size_t at) {
  return reinterpret_cast<unsigned char*>(text.data() + at);
}

std::string digest_of(std::string_view bytes, const EVP_MD* kind) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, kind, nullptr) != 1)
    throw Error(ExitCode::failure, fmt::format("the OpenSSL library could not compute {}", EVP_MD_get0_name(kind)));
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + length, ""));
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += bytes_at_once) {
    const auto part = bytes.substr(at, bytes_at_once);
    const auto before = text.size();
    text.resize(before + (part.size() + 2) / 3 * 4 + 1);  // OpenSSL ends its text with a NUL
    EVP_EncodeBlock(as_bytes(text, before), as_bytes(part), static_cast<int>(part.size()));
    text.pop_back();
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); at += bytes_at_once / 3 * 4) {
    const auto part = text.substr(at, bytes_at_once / 3 * 4);
    const auto before = bytes.size();
    bytes.resize(before + part.size() / 4 * 3 + 3);
    const int count = EVP_DecodeBlock(as_bytes(bytes, before), as_bytes(part), static_cast<int>(part.size()));
    if (count < 0) return std::nullopt;
    bytes.resize(before + static_cast<std::size_t>(count));
  }
  const auto padding = text.ends_with("==") ? 2U : text.ends_with("=") ? 1U : 0U;
  bytes.resize(bytes.size() - std::min<std::size_t>(padding, bytes.size()));
  if (to_base64(bytes) != text) return std::nullopt;  // the library accepts white space and padding inside
  return bytes;
}

std::string sha256(std::string_view bytes) { return digest_of(bytes, EVP_sha256()); }
std::string md5(std::string_view bytes) { return digest_of(bytes, EVP_md5()); }

std::string sha256_of_file(const std::filesystem::path& path) {
  constexpr std::uintmax_t largest = std::uintmax_t{16} << 30;
  return sha256(read_file(path, largest, ExitCode::data));
}

}  // namespace metaformer
