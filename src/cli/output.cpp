#include "cli/output.h"

#include <cstdio>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"

namespace metaformer {

void print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw Error(ExitCode::failure, "cannot write to standard output");
}

void print_lines(const std::string& text) { print(escaped_lines(text)); }

std::string to_line(const nlohmann::ordered_json& json) { return escaped(json_text(json)); }

void print_json(const nlohmann::ordered_json& json) { print(to_line(json) + "\n"); }

}  // namespace metaformer
