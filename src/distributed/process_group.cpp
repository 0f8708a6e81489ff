#include "distributed/process_group.h"

#include <fmt/format.h>
#include <torch/serialize.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "base/error.h"
#include "base/json.h"
#include "base/signals.h"

namespace metaformer {

namespace {

class OneProcess : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  PendingSum start_sum(const torch::Tensor&) override {
    return [] {};
  }
  PendingSum start_sum_on(const torch::Tensor& x, int) override { return start_sum(x); }
  void broadcast(const torch::Tensor&, int) override {}
  std::vector<std::string> gather(const std::string& bytes) override { return {bytes}; }
  bool announce_failure(const std::string&) override { return true; }
};

std::string to_bytes(const NamedTensors& named) {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : named) {
    names.push_back(name);
    tensors.push_back(tensor.detach().cpu().clone());  // a view would be written with its whole storage
  }
  const auto bytes = torch::pickle_save(c10::ivalue::Tuple::create(names, tensors));
  return {bytes.begin(), bytes.end()};
}

NamedTensors from_bytes(const std::string& bytes) {
  const auto parts = torch::pickle_load({bytes.begin(), bytes.end()}).toTuple()->elements().vec();
  const auto names = parts[0].to<std::vector<std::string>>();
  const auto tensors = parts[1].toTensorVector();
  NamedTensors named;
  for (std::size_t i = 0; i < names.size(); ++i) named.emplace_back(names[i], tensors[i]);
  return named;
}

std::int64_t sum_over_all(ProcessGroup& group, std::int64_t value) {
  const auto sum = torch::tensor({value});
  group.sum(sum);
  return sum.item<std::int64_t>();
}

// "train.steps is 20 on rank 1 and 10 on rank 0".
std::string describe_difference(std::size_t rank, const nlohmann::ordered_json& there,
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

}  // namespace

ProcessGroup& one_process() {
  static OneProcess group;
  return group;
}

std::vector<NamedTensors> gather_tensors(ProcessGroup& group, const NamedTensors& own) {
  if (group.size() == 1) return {own};
  std::vector<NamedTensors> all;
  for (const auto& bytes : group.gather(to_bytes(own))) all.push_back(from_bytes(bytes));
  return all;
}

void wait_for_all(ProcessGroup& group) { group.gather(""); }

std::string of_first(ProcessGroup& group, const std::string& text) { return group.gather(text).front(); }

bool all_agree(ProcessGroup& group, bool own) {
  const std::string yes = "yes";
  return std::ranges::all_of(group.gather(own ? yes : "no"), [&](const auto& answer) { return answer == yes; });
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
  // A counter of `bits` bits for each signal, so that the sum distinguishes them if processes got different signals.
  // Throws the first of `signals` that any process got.
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
