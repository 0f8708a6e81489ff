#pragma once
// Bytes as text (RFC 4648), by OpenSSL.

#include <optional>
#include <string>
#include <string_view>

namespace metaformer {

std::string to_base64(std::string_view bytes);

// Nothing where `text` is not the base64 of anything: padded, one line, no white space.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace metaformer
