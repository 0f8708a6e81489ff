#include "base/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "base/error.h"
#include "base/files.h"

namespace metaformer {

namespace {

std::string digest_of(std::string_view bytes, const EVP_MD* kind) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, kind, nullptr) != 1)
    throw Error(ExitCode::failure, fmt::format("the OpenSSL library could not compute {}", EVP_MD_get0_name(kind)));
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + length, ""));
}

}  // namespace

std::string sha256(std::string_view bytes) { return digest_of(bytes, EVP_sha256()); }
std::string md5(std::string_view bytes) { return digest_of(bytes, EVP_md5()); }

std::string sha256_of_file(const std::filesystem::path& path) {
  constexpr std::uintmax_t largest = std::uintmax_t{16} << 30;
  return sha256(read_file(path, largest, ExitCode::data));
}

}  // namespace metaformer
