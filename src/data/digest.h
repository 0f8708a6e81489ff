#pragma once
// Digests of bytes in memory, as hexadecimal digits.

#include <string>
#include <string_view>

namespace metaformer {

std::string sha256(std::string_view bytes);
std::string md5(std::string_view bytes);  // what some publishers name; no proof against malice

}  // namespace metaformer
