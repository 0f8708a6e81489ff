#include "report/checkpoint_results.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "config/writer.h"
#include "infer/beam_search.h"
#include "report/json.h"
#include "run/run_directory.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

// Changes when the run has another best checkpoint.
std::string state_of_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  const auto best = folder / "checkpoints" / "best";
  const auto time = fs::last_write_time(best / "meta.json", ignored).time_since_epoch().count();
  return fmt::format("{} {}", fs::read_symlink(best, ignored).string(), time);
}

// The same for runs of the same task and data.
std::string data_key(const LoadedRun& run) {
  auto data = config_to_json(run.experiment.config).value("data", Json::object());
  data.erase("tokenizer");
  return fmt::format("{} {}", kind_of(run.experiment.config.task), json_text(data));
}

std::string problem_of(const fs::path& folder, const char* what, const Error& error) {
  return fmt::format("{}: {}: {}", folder.string(), what, error.what());
}

const char* name_of(InspectedPart part) {
  switch (part) {
    case InspectedPart::encoder:
      return "source to source, ";
    case InspectedPart::decoder:
      return "target to target, ";
    case InspectedPart::cross:
      return "target to source, ";
    case InspectedPart::whole:
      break;
  }
  return "";
}

}  // namespace

const CheckpointResult& CheckpointReader::read(const Request& request) {
  const auto state = fmt::format("{} {} {}", state_of_checkpoint(request.folder), request.is_first, request.has_room);
  auto& result = results_[request.folder];
  if (result.state != state) {
    result = result_of(request);
    result.state = state;
  }
  return result;
}

CheckpointResult CheckpointReader::result_of(const Request& request) {
  CheckpointResult result;
  try {
    const auto run = load_run(request.folder, "best", options_.device);
    if (options_.with_texts) result.text = text_of(run);
    if (!request.is_first) return result;
    const bool translates = is<SequenceToSequenceConfig>(run.experiment.config.task);
    if (options_.with_texts && translates) add_translations(result, run);
    if (options_.with_insides && blocks_of(run.experiment.config.model) != nullptr)
      add_inspections(result, run, request);
  } catch (const Error& error) {
    result.problems.push_back(problem_of(request.folder, "no text and no heads", error));
  }
  return result;
}

Json CheckpointReader::text_of(const LoadedRun& run) try {
  const auto prompt = prompt_of(run);
  return {{"prompt", prompt_for(run, prompt)}, {"text", answer(run, prompt)}};
} catch (const Error& error) {
  return {{"error", fmt::format("no answer: {}", error.what())}};
}

void CheckpointReader::add_translations(CheckpointResult& result, const LoadedRun& run) {
  held_out(run);
  result.source_key = data_key(run);
  for (const auto& pair : held_out_sources(result.source_key)) {
    try {
      result.translations.push_back(written_target(run, pair["source"]));
    } catch (const Error& error) {
      result.translations.push_back(fmt::format("(no translation: {})", error.what()));
    }
  }
}

Json CheckpointReader::held_out_sources(const std::string& key) const {
  auto sources = Json::array();
  if (options_.prompt.prompt) sources.push_back({{"source", *options_.prompt.prompt}, {"target", nullptr}});
  if (const auto found = held_out_.find(key); found != held_out_.end())
    for (const auto& [source, target] : found->second.texts.pairs)
      sources.push_back({{"source", source}, {"target", target}});
  return sources;
}

std::vector<std::string> CheckpointReader::problems() const {
  std::vector<std::string> problems;
  for (const auto& [key, held_out] : held_out_)
    if (!held_out.problem.empty()) problems.push_back(held_out.problem);
  return problems;
}

// Runs of the same data have the same texts.
const CheckpointReader::HeldOut& CheckpointReader::held_out(const LoadedRun& run) {
  const auto [found, is_new] = held_out_.try_emplace(data_key(run));
  try {
    if (is_new) found->second.texts = held_out_texts(run);
  } catch (const Error& error) {
    found->second.problem = problem_of(run.directory.path(), "another text in place of one of its data", error);
  }
  return found->second;
}

// The options with the prompt of the report, or with a text of the run's data, unless the run continues texts.
PromptOptions CheckpointReader::prompt_of(const LoadedRun& run) {
  auto options = options_.prompt;
  if (!options.prompt && !is<LanguageModelConfig>(run.experiment.config.task))
    options.prompt = held_out(run).texts.text;
  return options;
}

// The given text; else the prompt, which a language model continues (all of them read the continuation of the first
// one); else a text of the run's data. If a run cannot read the prompt, only its answer is missing, not its heads.
std::string CheckpointReader::inspected_text(const LoadedRun& run) {
  if (options_.text) return *options_.text;
  auto prompt = prompt_of(run);
  try {
    if (prompt.prompt) ids_of_text(run, *prompt.prompt, limits.tokens);
  } catch (const Error&) {
    prompt.prompt = std::nullopt;
  }
  if (!prompt.prompt) prompt.prompt = held_out(run).texts.text;
  const bool is_typed = prompt.prompt && prompt.prompt == options_.prompt.prompt;
  if (!is<LanguageModelConfig>(run.experiment.config.task) || (prompt.prompt && !is_typed))
    return prompt_for(run, prompt);
  if (generated_.empty()) {
    prompt.tokens = limits.tokens;
    generated_ = prompt_for(run, prompt) + answer(run, prompt);
  }
  return generated_;
}

void CheckpointReader::add_inspections(CheckpointResult& result, const LoadedRun& run, const Request& request) try {
  result.is_left_out = !request.has_room;
  if (!request.has_room) return;
  const auto inspections = inspections_of(run);
  for (const auto& inspection : inspections) {
    auto& json = result.inspections.emplace_back(to_json(inspection, Matrices::packed));
    json["part"] = name_of(inspection.part);
  }
  result.bytes = json_text(result.inspections).size();
  if (request.figures == nullptr) return;
  for (const auto& inspection : inspections)
    for (const auto& [file, figure] : figures_of(inspection, request.group))
      request.figures->write(request.group + "_" + file, figure);
} catch (const Error& error) {
  result.problems.push_back(problem_of(request.folder, "no heads", error));
}

// For an encoder-decoder three inspections, the attention to the source first.
std::vector<TextInspection> CheckpointReader::inspections_of(const LoadedRun& run) {
  const auto ids = ids_of_text(run, inspected_text(run), limits.tokens);
  if (!is<SequenceToSequenceConfig>(run.experiment.config.task)) return {inspect_text(run, ids, limits)};
  auto parts = inspect_pair(run, {.source = ids, .target = write_target(run, ids).ids}, limits);
  std::rotate(parts.begin(), parts.end() - 1, parts.end());
  return parts;
}

}  // namespace metaformer
