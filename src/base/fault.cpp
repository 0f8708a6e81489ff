#include "base/fault.h"

#include <signal.h>

#include <cstdlib>
#include <string_view>

namespace metaformer {

namespace {

struct Plan {
  std::string_view point;
  long remaining = 0;
};

Plan read_plan() {
  const char* text = std::getenv("METAFORMER_FAULT");
  if (text == nullptr) return {};
  const std::string_view plan = text;
  const auto colon = plan.find(':');
  if (colon == std::string_view::npos) return {};
  return {plan.substr(0, colon), std::atol(text + colon + 1)};
}

}  // namespace

bool fault_strikes(const char* point) {
  static Plan plan = read_plan();
  return !plan.point.empty() && plan.point == point && --plan.remaining == 0;
}

void fault_point(const char* point) {
  if (fault_strikes(point)) ::raise(SIGKILL);
}

void stop_point(const char* point) {
  if (fault_strikes(point)) ::raise(SIGTERM);
}

}  // namespace metaformer
