#include "config/fail.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace metaformer {

std::string place_of(const Provenance& provenance, const std::string& key) {
  const auto found = provenance.find(key);
  return found == provenance.end() ? "default" : found->second.str();
}

void fail(const Provenance& provenance, const std::vector<std::string>& keys, const std::string& what) {
  const auto set =
      std::find_if(keys.begin(), keys.end(), [&](const std::string& key) { return provenance.contains(key); });
  throw Error(ExitCode::usage, fmt::format("{}: {}: {}", set == keys.end() ? "default" : place_of(provenance, *set),
                                           keys.front(), what));
}

}  // namespace metaformer
