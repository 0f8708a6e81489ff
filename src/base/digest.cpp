#include "base/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"

namespace metaformer {

namespace {

const unsigned char* as_bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* as_bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

void require(bool computed, const EVP_MD* kind) {
  if (!computed)
    throw Error(ExitCode::failure, fmt::format("the OpenSSL library could not compute {}", EVP_MD_get0_name(kind)));
}

using Digest = std::array<unsigned char, EVP_MAX_MD_SIZE>;

std::string in_hexadecimal(const Digest& digest, unsigned int length) {
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + length, ""));
}

std::string digest_of(std::string_view bytes, const EVP_MD* kind) {
  Digest digest;
  unsigned int length = 0;
  require(EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, kind, nullptr) == 1, kind);
  return in_hexadecimal(digest, length);
}

EVP_MD_CTX* as_context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

std::string to_base64(std::string_view bytes) {
  if (bytes.size() > std::size_t{1} << 30) throw Error(ExitCode::failure, "base64 of more than 1 GiB");
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL ends its text with a NUL
  EVP_EncodeBlock(as_bytes(text), as_bytes(bytes), static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3 + 3, '\0');
  const int count = EVP_DecodeBlock(as_bytes(bytes), as_bytes(text), static_cast<int>(text.size()));
  if (count < 0) return std::nullopt;
  const int padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;  // which the library decodes to zeros
  bytes.resize(static_cast<std::size_t>(std::max(count - padding, 0)));
  if (to_base64(bytes) != text) return std::nullopt;  // the library accepts white space and padding inside
  return bytes;
}

std::string sha256(std::string_view bytes) { return digest_of(bytes, EVP_sha256()); }
std::string md5(std::string_view bytes) { return digest_of(bytes, EVP_md5()); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  require(context_ != nullptr && EVP_DigestInit_ex(as_context(context_), EVP_sha256(), nullptr) == 1, EVP_sha256());
}

Sha256::~Sha256() { EVP_MD_CTX_free(as_context(context_)); }

void Sha256::add(std::string_view bytes) {
  require(EVP_DigestUpdate(as_context(context_), bytes.data(), bytes.size()) == 1, EVP_sha256());
}

std::string Sha256::digest() {
  Digest digest;
  unsigned int length = 0;
  require(EVP_DigestFinal_ex(as_context(context_), digest.data(), &length) == 1, EVP_sha256());
  return in_hexadecimal(digest, length);
}

std::string sha256_of_file(const std::filesystem::path& path) {
  constexpr std::uintmax_t largest = std::uintmax_t{16} << 30;
  return sha256(read_file(path, largest, ExitCode::data));
}

}  // namespace metaformer
