// The meta.json of a checkpoint gives an Error or progress that is written as the same text.

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "run/checkpoint_meta.h"

namespace {

using namespace metaformer;

void read(const std::string& text) {
  try {
    const auto again = to_text(read_checkpoint_meta(text, "fuzz"));
    if (to_text(read_checkpoint_meta(again, "fuzz")) != again) std::abort();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  // The digest is computed after the mutation, as a hostile writer would; a wrong one would end every run early.
  auto json = parse_json<nlohmann::ordered_json>(text);
  if (!json.is_object()) return 0;
  json.erase("sha256");
  json["sha256"] = sha256(json.dump());
  read(json.dump());
  return 0;
}
