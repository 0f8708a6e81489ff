#pragma once
// Defaults that follow from other keys, what a config changes of the defaults, and its digest.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "config/experiment_config.h"
#include "config/yaml.h"

namespace metaformer {

// Defaults that follow from other keys. Each counts where no source of the config sets its key.

// train.schedule.floor: a rate below the usual floor falls to a tenth of itself.
// data.tokenizer.whitespace: kept for the task language_model.
// model.embedding.scale: default_embedding_scale.
// train.cpu_slices: default_slices.
void derive_defaults(ExperimentConfig& config, const Provenance& provenance);

// sqrt_width where sinusoids, of amplitude 1, are added to embeddings that start much smaller (2017); else none.
EmbeddingScale default_embedding_scale(const ModelConfig& model);

// Of a model that has positions; others stay as they are.
void set_embedding_scale(ModelConfig& model, EmbeddingScale scale);

// One slice for each 384 tokens of a training batch times the width / 128, at least 1 and at most 8: a function of the
// config, so that a run has the same bytes on every machine. Labelled texts and pairs, which are padded, count as a
// quarter of the context. 1 where the gradients of all slices would take too much memory (models wider than 384;
// n-grams) or cannot be had (regions, bags).
std::int64_t default_slices(const ExperimentConfig& config);

// What a config changes of the defaults, and the digest by which runs of the same config are recognised.

// The keys whose values differ from the defaults of the chosen kinds, nested as in the config, sorted by name: a kind
// that is not the default one, and options that are not that kind's defaults. A key that a later version adds therefore
// changes nothing while it has its default. How many tokens train.evaluation sees is left out.
nlohmann::json config_changes(const ExperimentConfig& config);

// 16 hexadecimal digits of the SHA-256 of config_changes, train.cpu_slices left out: it only rounds.
std::string config_digest(const ExperimentConfig& config);

// {"model.mixer.kind": "quadratic", "train.steps": "100"}: nested JSON by the whole path of each value, the values as
// YAML.
std::map<std::string, std::string> flattened(const nlohmann::ordered_json& config);

// Whether a key of the model says how it trains, or how far it sees, but not what it computes from a text that fits.
bool keeps_function(std::string_view key);

}  // namespace metaformer
