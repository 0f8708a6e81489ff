#include "report/make_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/signals.h"
#include "config/writer.h"
#include "infer/answers.h"
#include "report/curves.h"
#include "report/figure.h"
#include "report/inspection.h"
#include "report/page.h"
#include "report/pictures.h"
#include "report/reported_runs.h"

namespace metaformer {

// What the report page shows of the inside of a run.

// to_json(inspection), where every head also has "attention", "scores", "form", "input_form" and "distances" as packed
// matrices (report/page.h), as far as the mixer has them. Forms with more than 256 rows are left out.
nlohmann::ordered_json describe_heads(const TextInspection& inspection);

namespace {

constexpr std::int64_t widest_form = 256;

void add_matrix(nlohmann::ordered_json& head, const char* name, const torch::Tensor& matrix_nij, std::int64_t n,
                bool causal = false) {
  if (!matrix_nij.defined() || matrix_nij.size(-1) > widest_form) return;
  if (auto packed = pack(matrix_nij[n], causal); !packed.is_null()) head[name] = std::move(packed);
}

}  // namespace

nlohmann::ordered_json describe_heads(const TextInspection& inspection) {
  auto json = to_json(inspection);
  for (std::size_t i = 0; i < inspection.layers.size(); ++i) {
    const auto& layer = inspection.layers[i];
    auto& heads = json["layers"][i]["heads"];
    for (std::size_t n = 0; n < heads.size(); ++n) {
      auto& head = heads[n];
      const auto number = static_cast<std::int64_t>(n);
      if (head.contains("eigenvalues")) head["eigenvalues"] = rounded(head["eigenvalues"].get<std::vector<double>>());
      add_matrix(head, "attention", layer.attention_nce, number, inspection.causal);
      add_matrix(head, "scores", layer.score_nce, number, inspection.causal);
      add_matrix(head, "form", layer.forms.form_nij, number);
      add_matrix(head, "input_form", layer.forms.input_form_ndd, number);
      add_matrix(head, "distances", layer.distance_nvv, number);
    }
  }
  return json;
}

using Json = nlohmann::ordered_json;

namespace {

// A page stays below 10 MB: so many bytes of matrices, and points of curves (about 20 bytes each).
constexpr std::size_t most_matrix_bytes = 6'500'000, most_points = 120'000;
constexpr std::size_t most_block_points = 60'000, most_points_of_block = 200, fewest_points_of_block = 10;
constexpr std::size_t most_points_of_curve = 1000, fewest_points_of_curve = 60;
constexpr InspectionLimits inspection_limits = {.tokens = 48, .vocabulary = 72};

class ReportMaker {
 public:
  explicit ReportMaker(const ReportOptions& options)
      : options_(options), reported_(read_reported_runs(options.runs, options.comparison)) {
    if (reported_.runs.empty())
      throw Error(ExitCode::usage,
                  "no run to report: give folders of runs; a results file only adds rows to the tables");
    if (!options.figures.empty()) figures_.emplace(options.figures);
  }

  Report make() {
    read_all_curves();
    data_ = to_json(reported_);
    data_["origin"] = fmt::format("Made by metaformer {}, commit {}{}.", build_info().version, build_info().commit,
                                  build_info().dirty ? " (changed)" : "");
    data_["curves"] = to_json(curves_);
    data_["curves"]["description"] = describe_curves();
    data_["blocks"] = describe_blocks();
    data_["texts"] = {{"description", describe_texts()}, {"samples", Json::array()}};
    data_["inspected"] = Json::array();
    data_["inspection_text"] = "";
    write_overview_figures();
    if (options_.with_texts || options_.with_insides) visit_checkpoints();
    data_["inspection_text"] = describe_inspection();
    log::clear_progress();
    Report report{.runs = reported_.runs.size(), .groups = reported_.groups.size(), .problems = reported_.problems};
    report.problems.insert(report.problems.end(), problems_.begin(), problems_.end());
    data_["problems"] = report.problems;
    report.figures = figures_ ? figures_->written() : 0;
    report.html = make_page(options_.title, data_);
    return report;
  }

 private:
  void read_all_curves() {
    std::vector<std::map<std::string, RunCurve>> by_run;
    std::size_t count = 0;
    blocks_.resize(reported_.runs.size());
    for (std::size_t i = 0; i < reported_.runs.size(); ++i) {
      show_progress("reading", i, i + 1);
      by_run.push_back(read_curves_of(i));
      count += 2 * by_run.back().size();
    }
    const auto most =
        std::clamp(most_points / std::max<std::size_t>(1, count), fewest_points_of_curve, most_points_of_curve);
    for (std::size_t i = 0; i < by_run.size(); ++i)
      for (const auto& [name, curve] : by_run[i]) {
        auto& series = curves_[name];
        series.runs.resize(by_run.size());
        averaged_ = std::max(averaged_, (curve.step.size() + most - 1) / most);
        series.runs[i] = thinned(curve, most, name == "train loss" || name == "gradient norm");
      }
    for (auto& [name, series] : curves_)
      for (const auto& group : reported_.groups) series.groups.push_back(mean_curve(curves_of(group, series)));
  }

  std::map<std::string, RunCurve> read_curves_of(std::size_t run) {
    const auto& folder = reported_.runs[run].folder;
    try {
      const auto file = RunDirectory::open(folder, "").metrics_file();
      blocks_[run] = read_block_curves(file);
      return read_curves(file);
    } catch (const Error& error) {
      problems_.push_back(fmt::format("{}: no curves: {}", folder.string(), error.what()));
      return {};
    }
  }

  // The runs that the comparison counts; of a group without such runs, all.
  std::vector<const RunCurve*> curves_of(const ReportedGroup& group, const CurveSeries& series) const {
    const bool compared =
        std::any_of(group.runs.begin(), group.runs.end(), [&](auto run) { return reported_.runs[run].compared; });
    std::vector<const RunCurve*> curves;
    for (const auto run : group.runs)
      if ((reported_.runs[run].compared || !compared) && !series.runs[run].step.empty())
        curves.push_back(&series.runs[run]);
    return curves;
  }

  // What train.diagnostics_interval has measured of the blocks, of the runs that have it.
  Json describe_blocks() const {
    std::size_t count = 0;
    for (const auto& curves : blocks_)
      for (const auto& [title, blocks] : curves) count += 3 * blocks.size();
    const auto most =
        std::clamp(most_block_points / std::max<std::size_t>(1, count), fewest_points_of_block, most_points_of_block);
    auto runs = Json::array();
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      if (!blocks_[i].empty()) runs.push_back({{"run", i}, {"panels", to_json(blocks_[i], most)}});
    return runs;
  }

  std::string describe_curves() const {
    std::string text =
        "Lines are means over the seeds, bands one standard deviation; by time, a point stands at the mean time of its "
        "step. Drag to zoom, double-click to see everything, point at the chart for values, click a name to hide it.";
    if (averaged_ > 1)
      text += fmt::format(
          " Long curves are thinned: a point of a training curve is the mean of up to {} lines of the "
          "log, of other curves only every n-th point is shown.",
          averaged_);
    return text;
  }

  std::string describe_texts() const {
    const bool writes = std::any_of(reported_.groups.begin(), reported_.groups.end(),
                                    [](const ReportedGroup& group) { return group.task == "language_model"; });
    std::string text = "The answers of all runs to the same prompt (bold).";
    if (writes)
      text += fmt::format(" Language models: {} tokens, temperature {}, seed {}.", options_.prompt.tokens,
                          options_.prompt.temperature, options_.prompt.seed);
    return text;
  }

  std::string describe_inspection() const {
    auto text = fmt::format("The first run of each group reads up to {} tokens of {}.", inspection_limits.tokens,
                            options_.text ? "the given text" : "the same text");
    if (not_inspected_ > 0)
      text += fmt::format(" {} more groups are left out, so that the page stays small.", not_inspected_);
    return text;
  }

  void write_overview_figures() {
    if (!figures_) return;
    std::vector<std::string> names;
    for (const auto& group : reported_.groups) names.push_back(group.name);
    for (const auto& view : views_of(curves_)) figures_->write("curves_" + view.name, figure_of(curves_, view, names));
    if (!reported_.comparison) return;
    for (const auto& [name, figure] : figures_of(*reported_.comparison)) figures_->write(name, figure);
  }

  // The page may have no room for the heads of all groups: first the groups that others are compared with, then one of
  // each mixer, then the others.
  std::vector<std::size_t> visiting_order() const {
    std::set<std::size_t> references;
    if (reported_.comparison)
      for (const auto& group : reported_.comparison->groups) {
        const auto& reference = reported_.comparison->groups[group.reference].runs.front().folder;
        for (std::size_t i = 0; i < reported_.runs.size(); ++i)
          if (reported_.runs[i].folder == reference) references.insert(i);
      }
    std::set<std::string> mixers;
    std::vector<std::pair<int, std::size_t>> order;
    for (std::size_t i = 0; i < reported_.runs.size(); ++i) {
      const auto& settings = reported_.groups[reported_.runs[i].group].settings;
      const auto mixer = settings.find("model.mixer.kind");
      const bool is_new = mixer != settings.end() && mixers.insert(mixer->second).second;
      order.emplace_back(references.contains(i) ? 0 : is_new ? 1 : 2, i);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> runs;
    for (const auto& [rank, run] : order) runs.push_back(run);
    return runs;
  }

  void visit_checkpoints() {
    std::size_t visited = 0;
    for (const auto i : visiting_order()) {
      throw_if_stopped();
      show_progress("texts and heads of", i, ++visited);
      const auto& group = reported_.groups[reported_.runs[i].group];
      const bool first = group.runs.front() == i;
      if (!options_.with_texts && !first) continue;
      try {
        const auto run = load_run(reported_.runs[i].folder, "best", options_.device);
        if (options_.with_texts) data_["texts"]["samples"].push_back(text_of(run, i));
        if (options_.with_insides && first && blocks_of(run.experiment.config.model) != nullptr) try_to_inspect(run, i);
      } catch (const Error& error) {
        problems_.push_back(
            fmt::format("{}: no text and no heads: {}", reported_.runs[i].folder.string(), error.what()));
      }
    }
    const auto by_run = [](const Json& a, const Json& b) { return a["run"] < b["run"]; };
    std::sort(data_["texts"]["samples"].begin(), data_["texts"]["samples"].end(), by_run);
    std::stable_sort(data_["inspected"].begin(), data_["inspected"].end(), by_run);
  }

  Json text_of(const LoadedRun& run, std::size_t i) {
    Json sample = {{"run", i}};
    try {
      sample.update(answer(run, prompt_of(run)));
    } catch (const Error& error) {
      sample["error"] = fmt::format("no answer: {}", error.what());
    }
    return sample;
  }

  void try_to_inspect(const LoadedRun& run, std::size_t i) {
    try {
      inspect(run, i);
    } catch (const Error& error) {
      problems_.push_back(fmt::format("{}: no heads: {}", reported_.runs[i].folder.string(), error.what()));
    }
  }

  // With the prompt of this report, or a text of the run's data; runs of the same data get the same text.
  PromptOptions prompt_of(const LoadedRun& run) {
    auto options = options_.prompt;
    if (!options.prompt) options.prompt = text_of_data(run);
    return options;
  }

  std::optional<std::string> text_of_data(const LoadedRun& run) {
    auto data = config_to_json(run.experiment.config).value("data", Json::object());
    data.erase("tokenizer");
    const auto key = fmt::format("{} {}", kind_of(run.experiment.config.task), json_text(data));
    const auto [found, is_new] = data_texts_.try_emplace(key);
    try {
      if (is_new) found->second = validation_text(run);
    } catch (const Error& error) {
      problems_.push_back(fmt::format("{}: a fixed prompt in place of a text of its data: {}",
                                      run.directory.path().string(), error.what()));
    }
    return found->second;
  }

  // All runs read one text: the given one, else what the first language model writes from the prompt, and of other runs
  // the prompt. A prompt that a run cannot read costs its answer, not its heads.
  std::string inspected_text(const LoadedRun& run) {
    if (options_.text) return *options_.text;
    auto prompt = prompt_of(run);
    if (prompt.prompt && !can_read(run, *prompt.prompt)) prompt.prompt = text_of_data(run);
    if (!is<LanguageModelConfig>(run.experiment.config.task)) return prompt_for(run, prompt);
    if (written_.empty()) {
      prompt.tokens = inspection_limits.tokens;
      const auto written = answer(run, prompt);
      written_ = written["prompt"].get<std::string>() + written["text"].get<std::string>();
    }
    return written_;
  }

  static bool can_read(const LoadedRun& run, const std::string& text) {
    try {
      ids_of_text(run, text, inspection_limits.tokens);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void inspect(const LoadedRun& run, std::size_t i) {
    if (matrix_bytes_ > most_matrix_bytes) {
      ++not_inspected_;
      return;
    }
    const auto& name = reported_.groups[reported_.runs[i].group].name;
    const auto inspections = inspections_of(run);
    auto parts = Json::array();
    for (const auto& inspection : inspections) {
      auto& json = parts.emplace_back(describe_heads(inspection));
      json["run"] = i;
      json["name"] = fmt::format("{}{}, seed {}", name_of(inspection.part), name, reported_.runs[i].seed);
    }
    const auto size = json_text(parts).size();
    if (matrix_bytes_ + size > most_matrix_bytes && !data_["inspected"].empty()) {
      ++not_inspected_;
    } else {
      matrix_bytes_ += size;
      for (auto& json : parts) data_["inspected"].push_back(std::move(json));
    }
    if (!figures_) return;
    for (const auto& inspection : inspections)
      for (const auto& [file, figure] : figures_of(inspection, name)) figures_->write(name + "_" + file, figure);
  }

  // Of an encoder and decoder three, what it attends to in the source first.
  std::vector<TextInspection> inspections_of(const LoadedRun& run) {
    const auto text = inspected_text(run);
    if (!is<SequenceToSequenceConfig>(run.experiment.config.task))
      return {inspect_text(run, ids_of_text(run, text, inspection_limits.tokens), inspection_limits)};
    const auto source = ids_of_text(run, text, inspection_limits.tokens);
    auto parts = inspect_pair(run, {.source = source, .target = write_target(run, source).ids}, inspection_limits);
    std::rotate(parts.begin(), parts.end() - 1, parts.end());
    return parts;
  }

  static std::string name_of(InspectedPart part) {
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

  void show_progress(const char* what, std::size_t i, std::size_t place) const {
    log::progress(
        fmt::format("report: {} run {} of {}, {}", what, place, reported_.runs.size(), reported_.runs[i].name));
  }

  const ReportOptions& options_;
  ReportedRuns reported_;
  std::optional<figures::FigureFolder> figures_;
  CurveTable curves_;
  std::vector<BlockCurves> blocks_;  // by run
  std::size_t averaged_ = 1;         // lines of a log in one point, at most
  Json data_;
  std::string written_;
  std::map<std::string, std::optional<std::string>> data_texts_;  // by task and data
  std::size_t matrix_bytes_ = 0, not_inspected_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace

Report make_report(const ReportOptions& options) { return ReportMaker(options).make(); }

}  // namespace metaformer
