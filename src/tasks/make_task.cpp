#include "tasks/make_task.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

Task make_whole_task(const ExperimentConfig& config, bool offline, Codec codec) {
  if (list_task(config.task)) return make_list_task(config);
  if (is<ClassificationConfig>(config.task)) return make_classification_task(config, offline, std::move(codec));
  if (is<MaskedLanguageModelConfig>(config.task))
    return make_masked_language_model_task(config, offline, std::move(codec));
  if (is<SequenceToSequenceConfig>(config.task))
    return make_sequence_to_sequence_task(config, offline, std::move(codec));
  return make_language_model_task(config, offline, std::move(codec));
}

// The files and folders that the section data names are where it says. Those of a run may have moved since.
void require_data_in_place(ExperimentConfig config, bool is_of_run) {
  for (const auto& [key, path] : paths_in(config)) {
    if (path == nullptr || !is_data_path(config, key)) continue;
    const auto place = with_seed(*path, config.train);
    std::error_code ignored;
    if (fs::status(place, ignored).type() == fs::file_type::not_found)
      throw Error(
          ExitCode::data,
          is_of_run
              ? fmt::format("{}: no such file or folder; if it has moved, name its new place: --set {}=...", place, key)
              : fmt::format("{}: no such file or folder, which {} names", place, key));
  }
}

}  // namespace

Task make_task(const ExperimentConfig& config, bool offline, Codec codec) {
  require_data_in_place(config, /*is_of_run=*/codec.tokenizer != nullptr);
  auto task = make_whole_task(config, offline, std::move(codec));
  if (config.train.overfit_batch)
    task.batches = std::make_shared<OneBatchStream>(task.batches, config.train.accumulate);
  return task;
}

}  // namespace metaformer
