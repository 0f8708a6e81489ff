#pragma once
// Texts, translations and inspections of the best checkpoints of runs, for a report that may be made again and again.

#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/inspection.h"
#include "report/pictures.h"
#include "report/run_texts.h"

namespace metaformer {

struct CheckpointOptions {
  PromptOptions prompt;
  std::optional<std::string> text;  // its attention is shown; default: the prompt and its answer, or without a prompt
                                    // a text of the validation split
  std::string device = "auto";
  bool with_texts = true, with_insides = true;
};

struct CheckpointResult {
  std::string state;            // of the checkpoint and of the request; another one makes the result out of date
  nlohmann::ordered_json text;  // {"prompt", "text" or "error"}; null: not wanted or none
  std::string source_key;       // of held_out_sources(); "": no translations
  std::vector<std::string> translations;                                 // of those sources
  nlohmann::ordered_json inspections = nlohmann::ordered_json::array();  // {"part", and to_json(TextInspection)}
  std::size_t bytes = 0;                                                 // of the inspections as text
  bool is_left_out = false;                                              // the inspections, for their size
  std::vector<std::string> problems = {};
};

class CheckpointReader {
 public:
  static constexpr InspectionLimits limits = {.tokens = 48, .vocabulary = 72};

  explicit CheckpointReader(CheckpointOptions options) : options_(std::move(options)) {}

  struct Request {
    std::filesystem::path folder;
    bool is_first = false;   // of its group: such a run is inspected and translates
    bool has_room = true;    // for inspections
    std::string group = {};  // its name, for figures
    FigureFolder* figures = nullptr;
  };

  // The result of the run's best checkpoint, read again only if the checkpoint or the request has changed. An error of
  // the run is one of the problems.
  const CheckpointResult& read(const Request& request);

  // The sources that the runs with this key have translated, [{"source", "target"}]; the target of the prompt is null.
  nlohmann::ordered_json held_out_sources(const std::string& key) const;

  // A line for every kind of data that cannot be read.
  std::vector<std::string> problems() const;

 private:
  struct HeldOut {
    HeldOutTexts texts;
    std::string problem;
  };

  CheckpointResult result_of(const Request& request);
  nlohmann::ordered_json text_of(const LoadedRun& run);
  void add_translations(CheckpointResult& result, const LoadedRun& run);
  void add_inspections(CheckpointResult& result, const LoadedRun& run, const Request& request);
  std::vector<TextInspection> inspections_of(const LoadedRun& run);
  std::string inspected_text(const LoadedRun& run);
  PromptOptions prompt_of(const LoadedRun& run);
  const HeldOut& held_out(const LoadedRun& run);

  CheckpointOptions options_;
  std::map<std::filesystem::path, CheckpointResult> results_;
  std::map<std::string, HeldOut> held_out_;  // by task and data; of an unreadable one empty
  std::string generated_;                    // by the first language model
};

}  // namespace metaformer
