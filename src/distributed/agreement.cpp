#include "distributed/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "base/error.h"
#include "base/json_text.h"
#include "base/signals.h"

namespace metaformer {

static std::int64_t sum_over_all(ProcessGroup& group, std::int64_t value) {
  const auto sum = torch::tensor({value});
  group.sum(sum);
  return sum.item<std::int64_t>();
}

void wait_for_all(ProcessGroup& group) { group.gather(""); }

std::string of_first(ProcessGroup& group, const std::string& text) { return group.gather(text).front(); }

// "train.steps is 20 on rank 1 and 10 on rank 0".
static std::string describe_difference(std::size_t rank, const nlohmann::ordered_json& there,
                                       const nlohmann::ordered_json& first) {
  const nlohmann::ordered_json::json_pointer place(
      nlohmann::ordered_json::diff(first, there).front().at("path").get<std::string>());
  const auto value_in = [&](const nlohmann::ordered_json& values) {
    return values.contains(place) ? json_text(values.at(place)) : std::string("absent");
  };
  auto name = place.to_string().substr(1);
  std::replace(name.begin(), name.end(), '/', '.');
  return fmt::format("{} is {} on rank {} and {} on rank 0", name, value_in(there), rank, value_in(first));
}

void require_same(ProcessGroup& group, const nlohmann::ordered_json& values) {
  if (group.size() == 1) return;
  const auto all = group.gather(json_text(values));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      throw Error(ExitCode::usage, fmt::format("the processes do not train the same: {}",
                                               describe_difference(rank, nlohmann::ordered_json::parse(all[rank]),
                                                                   nlohmann::ordered_json::parse(all.front()))));
}

void throw_if_any_stopped(ProcessGroup& group) {
  if (group.size() == 1) return throw_if_stopped();
  // Bits, so that the sum of a group in which two got different signals still tells them: the first is taken.
  constexpr std::array signals = {SIGINT, SIGTERM, SIGHUP};
  constexpr int bits = 20;
  std::int64_t own = 0;
  for (std::size_t i = 0; i < signals.size(); ++i)
    if (stop_signal() == signals[i]) own = std::int64_t{1} << (bits * i);
  const auto all = sum_over_all(group, own);
  for (std::size_t i = 0; i < signals.size(); ++i)
    if (((all >> (bits * i)) & ((1 << bits) - 1)) != 0) throw Interrupted(signals[i]);
}

bool take_save_request_of_any(ProcessGroup& group) {
  const bool own = take_save_request();
  return group.size() == 1 ? own : sum_over_all(group, own) > 0;
}

}  // namespace metaformer
