#include "run/moved_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

using Digests = std::map<std::string, std::string>;  // "train.sha256"

void collect(const Json& description, const std::string& prefix, Digests& digests) {
  for (const auto& [key, value] : description.items()) {
    if (value.is_object()) collect(value, prefix + key + ".", digests);
    if (value.is_string() && key.ends_with("sha256")) digests[prefix + key] = value.get<std::string>();
  }
}

Digests digests_in(const Json& description) {
  Digests digests;
  if (description.is_object()) collect(description, "", digests);
  return digests;
}

Digests digests_of(const RunDirectory& run) {
  const auto environment = read_environment(run);
  return environment.is_object() ? digests_in(environment.value("data", Json())) : Digests();
}

std::string digest_or(const Digests& digests, const std::string& name) {
  const auto found = digests.find(name);
  return found == digests.end() ? "missing" : found->second;
}

std::string first_difference(const Digests& before, const Digests& now) {
  auto all = before;
  all.insert(now.begin(), now.end());
  for (const auto& [name, digest] : all)
    if (digest_or(before, name) != digest_or(now, name))
      return fmt::format("{} is {} and was {}", name, digest_or(now, name), digest_or(before, name));
  return "";
}

// "validation.target_sha256" of the key data.validation_target_path. Texts without labels have no split "train".
std::string digest_name(std::string_view key, const Digests& digests) {
  key.remove_prefix(std::string_view("data.").size());
  const auto split = key.starts_with("path") || key.starts_with("target") ? "train" : key.substr(0, key.find('_'));
  const auto name = fmt::format("{}.{}sha256", split, key.find("target") == std::string_view::npos ? "" : "target_");
  return split == "train" && !digests.contains(name) ? "sha256" : name;
}

[[noreturn]] void refuse(const RunDirectory& run, const std::vector<std::string>& places, const std::string& why) {
  throw Error(ExitCode::data, fmt::format("--set {}: not the data that {} was trained on: {}",
                                          fmt::join(places, " --set "), run.path().string(), why));
}

// The paths of these keys, as "data.path=/b.txt".
std::vector<std::string> places_of(ExperimentConfig config, const std::vector<std::string>& keys) {
  std::vector<std::string> places;
  for (const auto& [key, path] : paths_in(config))
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      places.push_back(fmt::format("{}={}", key, path == nullptr ? "null" : *path));
  return places;
}

}  // namespace

std::string differing_digest(const RunDirectory& run, const Json& description) {
  const auto before = digests_of(run);
  return before.empty() ? "" : first_difference(before, digests_in(description));
}

void require_moved_files(const RunDirectory& run, const ExperimentConfig& config,
                         const std::vector<std::string>& moved) {
  const auto before = digests_of(run);
  if (moved.empty() || before.empty()) return;
  auto copy = config;
  for (const auto& [key, path] : paths_in(copy)) {
    if (path == nullptr || std::find(moved.begin(), moved.end(), key) == moved.end()) continue;
    const auto name = digest_name(key, before);
    const auto place = with_seed(*path, config.train);
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(place, ignored)) continue;
    if (const auto digest = sha256_of_file(place), trained = digest_or(before, name); digest != trained)
      refuse(run, places_of(config, {key}), fmt::format("{} is {} and was {}", name, digest, trained));
  }
}

void require_moved_data(const RunDirectory& run, const ExperimentConfig& config, const std::vector<std::string>& moved,
                        const Json& description) {
  if (moved.empty()) return;
  const auto places = places_of(config, moved);
  const auto before = digests_of(run);
  if (before.empty())
    return log::warning(
        "{}: whether these are the data that {} was trained on cannot be checked: its environment.json has no digests",
        fmt::join(places, ", "), run.path().string());
  if (const auto difference = first_difference(before, digests_in(description)); !difference.empty())
    refuse(run, places, difference);
  log::info("{}: the data that the run was trained on, by their SHA-256", fmt::join(places, ", "));
}

}  // namespace metaformer
