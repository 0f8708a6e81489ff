#pragma once
// environment.json of a run: on what, with what and with which command each of its processes trained.

#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run/run_directory.h"

namespace metaformer {

// Of one process that trains the run.
struct Session {
  std::vector<std::string> command;
  torch::Device device;
  std::int64_t first_step = 0;  // steps that earlier processes had done
};

// Describes this process and the data, and adds the process to the list of sessions, which keeps the earlier ones.
void write_environment(const RunDirectory& run, const Session& session, const nlohmann::ordered_json& data);

// The content; null when the run has none, or none that can be read.
nlohmann::ordered_json read_environment(const RunDirectory& run);

// Whether data are those that the run was trained on, wherever they lie now. True when the run does not say.
bool has_same_data(const RunDirectory& run, const nlohmann::ordered_json& data);

// A data description without where the data lie: what is left is the same for the same data.
nlohmann::ordered_json without_paths(const nlohmann::ordered_json& description);

}  // namespace metaformer
