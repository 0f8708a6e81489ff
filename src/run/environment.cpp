#include "run/environment.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <ctime>

#include "base/build_info.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/mkl_path.h"
#include "ops/device.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

Json describe(const Session& session) {
  utsname system{};
  uname(&system);
  return {{"version", build_info().version},
          {"commit", build_info().commit},
          {"dirty", build_info().dirty},
          {"torch", TORCH_VERSION},
          {"compiler", build_info().compiler},
          {"device", session.device.str()},
          {"device_name", device_description(session.device)},
          {"threads", at::get_num_threads()},
          {"matrix_products", describe(mkl_path())},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"host", system.nodename},
          {"command", session.command}};
}

Json earlier_sessions(const RunDirectory& run) {
  const auto environment = read_environment(run);
  const auto sessions = environment.is_object() ? environment.value("sessions", Json()) : Json();
  return sessions.is_array() ? sessions : Json::array();
}

}  // namespace

Json read_environment(const RunDirectory& run) {
  constexpr std::uintmax_t largest = 1 << 26;
  std::error_code ignored;
  if (!std::filesystem::exists(run.environment_file(), ignored)) return {};
  auto environment = parse_json<Json>(read_file(run.environment_file(), largest, ExitCode::failure));
  return environment.is_object() ? environment : Json();
}

void write_environment(const RunDirectory& run, const Session& session, const Json& data) {
  constexpr std::size_t most_sessions = 1000;  // of about 15 keys; the reader takes 20,000
  auto environment = describe(session);
  Json entry = {{"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
                {"first_step", session.first_step}};
  entry.update(environment);
  auto sessions = earlier_sessions(run);
  sessions.push_back(std::move(entry));
  if (sessions.size() > most_sessions) sessions.erase(1);
  environment["data"] = data;
  environment["sessions"] = std::move(sessions);
  write_file_atomically(run.environment_file(), json_text(environment, 2) + "\n");
}

bool has_same_data(const RunDirectory& run, const Json& data) {
  const auto environment = read_environment(run);
  const auto before = environment.is_object() ? environment.value("data", Json()) : Json();
  return !before.is_object() || without_paths(before) == without_paths(data);
}

nlohmann::ordered_json without_paths(const nlohmann::ordered_json& description) {
  if (!description.is_object()) return description;
  nlohmann::ordered_json kept;
  for (const auto& [key, value] : description.items())
    if (!key.ends_with("path")) kept[key] = without_paths(value);
  return kept;
}

}  // namespace metaformer
