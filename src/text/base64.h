#pragma once
// Base64 (RFC 4648), by OpenSSL.

#include <optional>
#include <string>
#include <string_view>

namespace metaformer {

std::string to_base64(std::string_view bytes);

// Nothing if `text` is not valid base64: padded, on one line, without white space.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace metaformer
