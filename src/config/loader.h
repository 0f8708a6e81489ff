#pragma once
// From a config's name and --set arguments to a checked experiment.

#include <filesystem>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "config/yaml.h"

namespace metaformer {

// Applies one source of a config to an experiment, and records in `provenance` where each key was set.
//
// Strict: unknown keys, wrong types and unknown names are Errors (exit code 2) that name place, key and value. A kind
// that differs from the earlier sources' resets that section to the new kind's defaults (a task or model
// keeps the keys that both kinds have). A source that sets only one of train.steps and train.epochs replaces the other
// one, and a source that names tokens in files replaces data.tokenizer. Ranges are checked later, once, by
// check_config: a later source may correct them.
void apply_source(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance);

// Valid but probably unintended settings: one line each, with the place of the value: "my.yaml:3:9: train.steps: ...".
std::vector<std::string> config_warnings(const ExperimentConfig& config, const Provenance& provenance);

// Called once, after all sources of a config are applied. Throws Error (exit code 2) for the first value that is out of
// range or contradicts another one, with the place where it was set.
void check_config(const ExperimentConfig& config, const Provenance& provenance);

struct Experiment {
  std::string name;  // the config file's name without folder and ending
  ExperimentConfig config;
  Provenance provenance;
};

// The folders in which a bare config name is looked up after the working folder: METAFORMER_CONFIG_PATH (colon
// separated), then the installation's configs or, when run from a build, the source tree's.
std::vector<std::filesystem::path> config_folders();

// The file of the config `name`: `name` itself if it is a path, else the first one found. Errors (exit code 2) list the
// searched folders and the nearest name.
std::filesystem::path find_config(const std::string& name);

// Sources, in order: defaults < base files < the file < overrides ("train.steps=200"). Relative data paths become
// absolute, from the working folder. Errors: exit code 2.
Experiment load_experiment(const std::string& name, const std::vector<std::string>& overrides = {});

// The same without a file: defaults < overrides.
Experiment default_experiment(const std::vector<std::string>& overrides = {});

// The config.yaml of a run, which names every key; then overrides. Errors: exit code 2.
Experiment load_run_experiment(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});

}  // namespace metaformer
