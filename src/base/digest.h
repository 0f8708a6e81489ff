#pragma once
// SHA-256 and base64.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace metaformer {

// Base64 (RFC 4648) of up to 1 GiB, by OpenSSL, which counts in int.
std::string to_base64(std::string_view bytes);

// Nothing if `text` is not valid base64: padded, on one line, without white space.
std::optional<std::string> from_base64(std::string_view text);

// Digests in hexadecimal.
std::string sha256(std::string_view bytes);
std::string md5(std::string_view bytes);  // which some publishers use; not secure against attacks

// The SHA-256 of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256();

  void add(std::string_view bytes);
  std::string digest();  // of all bytes so far; no further call may follow

 private:
  void* context_;  // of OpenSSL
};

// The digest of a file of up to 16 GiB. Errors: exit code 3.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace metaformer
