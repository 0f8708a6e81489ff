#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/signals.h"
#include "base/text.h"
#include "config/loader.h"
#include "config/writer.h"
#include "data/labelled.h"
#include "data/list_dataset.h"
#include "data/pairs.h"
#include "data/text_dataset.h"
#include "data/token_folder.h"
#include "infer/answers.h"
#include "infer/sampling.h"
#include "report/curves.h"
#include "report/figure.h"
#include "report/frontier.h"
#include "report/inspection.h"
#include "report/json.h"
#include "report/pictures.h"
#include "report/run_records.h"
#include "run/load_run.h"
#include "run/run_directory.h"
#include "run/run_summary.h"
#include "text/special_tokens.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

// Replaces @names@ by values; inserted text is not searched again.
std::string fill(std::string_view pattern, const std::map<std::string, std::string_view>& values) {
  static const std::regex name("@([a-z0-9_]+)@");
  std::string result;
  const auto* rest = pattern.begin();
  for (std::cregex_iterator match(pattern.begin(), pattern.end(), name), end; match != end; ++match) {
    result.append(rest, (*match)[0].first);
    result += values.at((*match)[1]);
    rest = (*match)[0].second;
  }
  return result.append(rest, pattern.end());
}

// Prompts and answers.

std::string generate(const LoadedRun& run, const std::vector<std::int32_t>& prompt, std::int64_t count,
                     SamplingOptions options) {
  if (const auto cut = prompt_cut(*run.model, prompt.size()); !cut.empty())
    log::warning("{}: {}", run.directory.path().string(), cut);
  const auto eos = special_tokens_of(*run.codec.tokenizer).eos;
  options.never = ids_without_token(*run.codec.tokenizer);
  TextGenerator generator(*run.model, prompt, options, run.device);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    throw_if_stopped();
    const auto token = generator.next().front();
    if (std::find(eos.begin(), eos.end(), token) != eos.end()) break;
    tokens.push_back(token);
  }
  return run.codec.tokenizer->decode(tokens);
}

// Encodes a prompt as predict reads a text.
std::vector<std::int32_t> encode(const LoadedRun& run, const TextAnswers& answers, const std::string& prompt) {
  bool cut = false;
  auto ids = answers.encode(prompt, cut);
  if (cut)
    log::warning("{}: the prompt is longer than the model's context and is cut to {} tokens",
                 run.directory.path().string(), ids.size());
  return ids;
}

std::string classify(const LoadedRun& run, const std::string& prompt) {
  const auto prediction = predict(run, {encode(run, class_answers(run), prompt)}).front();
  std::string text;
  for (std::size_t i = 0; i < prediction.probabilities.size(); ++i)
    text += fmt::format("\n{}{}: {:.1f}%", i == prediction.label ? "→ " : "   ", run.codec.labels[i],
                        100 * prediction.probabilities[i]);
  return text;
}

// A list from the largest number down.
std::string default_list(const ListTask& task) {
  std::string numbers;
  for (std::int64_t i = task.length - 1; i >= 0; --i)
    numbers += fmt::format("{}{}", i % task.digits + task.first_number(), i > 0 ? " " : "");
  return numbers;
}

// A source to translate; a list for a task of random symbols, which have no words.
std::string default_source(const SequenceToSequenceConfig& task) {
  if (const auto* symbols = synthetic_options(task.data.synthetic))
    return default_list({.length = symbols->length, .digits = symbols->symbols});
  if (task.data.path || task.data.source_language != "de") return "A man with a hat is standing next to a small dog.";
  return "Ein Mann mit einem Hut steht neben einem kleinen Hund.";
}

// A short text of the validation split, as it was read, for a classifier, a translator or a masked language model;
// nothing for other runs. Downloads nothing. Errors: the data cannot be read.
std::optional<std::string> validation_text(const LoadedRun& run) {
  constexpr bool offline = true;
  static constexpr std::size_t short_text = 300;  // bytes: it fits into a page
  const auto& config = run.experiment.config;
  if (is<ClassificationConfig>(config.task)) {  // the first short one, else the shortest
    const auto texts = load_labelled_splits(labelled_data(config), offline)[Split::validation];
    const auto size = [](const LabelledText& text) { return std::max(text.text.size(), short_text); };
    return std::ranges::min_element(texts, {}, size)->text;
  }
  if (const auto* task = std::get_if<SequenceToSequenceConfig>(&config.task)) {
    if (synthetic_options(task->data.synthetic) != nullptr) return std::nullopt;
    const auto pairs = load_pairs(config, offline, run.codec);
    return pairs->texts(Split::validation, pairs->count(Split::validation) / 2).source;  // of medium length
  }
  if (!is<MaskedLanguageModelConfig>(config.task)) return std::nullopt;
  const auto& data = *text_data_of(config.task);
  constexpr std::int64_t most_tokens = 300;  // each has a byte at least, nearly always
  const auto held_out = [&] {
    if (!has_tokens(data)) return std::string(split_corpus(load_corpus(data, offline), data)[1]);
    const auto tokens = load_text(data, offline, run.codec.tokenizer).splits[1].tokens;
    return run.codec.tokenizer->decode(tokens.slice(0, std::min(most_tokens, tokens.size())));
  }();
  const std::string_view text = held_out;
  auto size = std::min(text.size(), short_text);
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80)
    --size;  // ends after a whole character
  return std::string(text.substr(0, size));
}

std::string prompt_for(const LoadedRun& run, const PromptOptions& options) {
  if (options.prompt) return *options.prompt;
  const auto& task = run.experiment.config.task;
  if (const auto lists = list_task(task)) return default_list(*lists);
  if (const auto* pairs = std::get_if<SequenceToSequenceConfig>(&task)) return default_source(*pairs);
  if (is<ClassificationConfig>(task)) return "This film was not as good as I had hoped, but the actors were great.";
  return default_prompt(*run.codec.tokenizer);
}

// The answer to prompt_for(run, options). Errors: exit code 2 or 3 for a prompt that the run cannot read.
std::string answer(const LoadedRun& run, const PromptOptions& options) {
  const auto& task = run.experiment.config.task;
  const auto prompt = prompt_for(run, options);
  if (is<ClassificationConfig>(task)) return classify(run, prompt);
  if (is<SequenceToSequenceConfig>(task)) {
    const auto target = write_target(run, encode(run, target_answers(run, {}), prompt)).ids;
    return "\n→ " + run.codec.tokenizer->decode(target);
  }
  if (!continues_text(task)) fail_usage("a model of task {} cannot continue a text", kind_of(task));
  const auto ids = run.codec.tokenizer->encode(prompt);
  if (ids.empty()) fail_usage("the prompt holds no token");
  SamplingOptions sampling{.temperature = options.temperature, .seed = options.seed};
  const auto lists = list_task(task);
  if (!lists) return generate(run, ids, options.tokens, sampling);
  sampling.temperature = 0;
  return "\n→ " + generate(run, list_prompt(*lists, ids), lists->length, sampling);
}

// The runs of a report.

struct ReportedRun {
  fs::path folder;
  std::string name;  // of the folder
  std::int64_t seed = 0;
  std::size_t group = 0;
  bool compared = false;  // it counts in the comparison
  Json shown = {};        // as on the page
};

struct ReportedGroup {
  std::string name;
  std::optional<Settings> changed = std::nullopt;  // changed_settings; nothing before the first run
  std::string task = {};                           // kind
  Settings settings = {};                          // all that apply
  std::string config = {};                         // of the first run, as YAML
  std::vector<std::size_t> runs = {};
};

// The groups of the comparison come first, then those that it leaves out.
struct ReportedRuns {
  std::vector<ReportedRun> runs;
  std::vector<ReportedGroup> groups;
  std::optional<Comparison> comparison;  // nothing when no run is finished
  std::vector<std::string> problems;     // a line each: runs that could not be read, or are not compared
};

Json describe_environment(const Json& environment) {
  Json result = Json::object();
  for (const char* key : {"commit", "threads", "torch", "compiler", "host"}) result[key] = text_of(environment, key);
  result["commit"] = result["commit"].get<std::string>().substr(0, 12) +
                     (environment.value("dirty", Json()) == true ? " (changed)" : "");
  result["device"] = fmt::format("{} {}", text_of(environment, "device"), text_of(environment, "device_name"));
  const auto sessions = environment.value("sessions", Json());
  const bool has_start = sessions.is_array() && !sessions.empty() && sessions.front().is_object();
  result["started"] = has_start ? text_of(sessions.front(), "started") : "";
  std::string command;
  for (const auto& word : environment.value("command", Json()))
    if (word.is_string()) command += (command.empty() ? "" : " ") + word.get<std::string>();
  result["command"] = command;
  return result;
}

// `compared`: the comparison's groups by folder; `unfinished`: why the run has no result. Skips a copy of a compared
// run.
void add_run(ReportedRuns& reported, const fs::path& folder, const std::map<fs::path, std::size_t>& compared,
             const std::string& unfinished) {
  const auto run = RunDirectory::open(folder, "");
  const auto config = load_run_experiment(run.config_file()).config;
  const auto changed = changed_settings(config);
  const auto known = compared.find(folder);
  auto& groups = reported.groups;
  ReportedRun added{.folder = folder,
                    .name = fs::weakly_canonical(folder).filename().string(),
                    .seed = config.train.seed,
                    .compared = known != compared.end()};
  const auto is_same = [&](const RunRecord& other) { return other.seed == added.seed && other.settings == changed; };
  for (std::size_t i = 0; !added.compared && reported.comparison && i < reported.comparison->groups.size(); ++i)
    if (std::ranges::any_of(reported.comparison->groups[i].runs, is_same)) return;
  if (added.compared) {
    added.group = known->second;
  } else {
    const auto equal = std::ranges::find(groups, std::optional(changed), &ReportedGroup::changed);
    added.group = static_cast<std::size_t>(equal - groups.begin());
    if (equal == groups.end()) groups.push_back({.name = added.name});
  }
  auto& group = groups[added.group];
  group.changed = changed;
  if (group.runs.empty()) {
    group.task = kind_of(config.task);
    group.settings = all_settings(changed);
    group.config = config_to_yaml(config);
  }
  group.runs.push_back(reported.runs.size());
  const auto summary = read_summary(run);
  const auto collapse = summary ? summary->attention_collapse : std::nullopt;
  added.shown = {{"name", added.name},
                 {"seed", added.seed},
                 {"group", 0},
                 {"state", summary ? "finished" : unfinished},
                 {"attention_collapse", collapse ? to_json(*collapse) : Json()},
                 {"time", summary ? rounded(summary->train_seconds) : Json()},
                 {"environment", describe_environment(read_environment(run))}};
  reported.runs.push_back(std::move(added));
}

ReportedRuns read_reported_runs(const std::vector<std::string>& arguments, const ComparisonOptions& options) {
  ReportedRuns reported;
  auto found = find_runs(arguments);
  reported.problems = std::move(found.problems);
  std::map<fs::path, std::size_t> compared;
  if (!found.runs.empty()) {
    reported.comparison = compare_runs(std::move(found.runs), options);
    const auto& groups = reported.comparison->groups;
    for (const auto& name : short_names(groups)) reported.groups.push_back({.name = name});
    for (std::size_t i = 0; i < groups.size(); ++i)
      for (const auto& run : groups[i].runs) compared[run.folder] = i;
  }
  for (const auto& folder : found.folders) {
    const bool has_problem = found.unfinished.contains(folder);
    try {
      add_run(reported, folder, compared, found.unfinished[folder]);
    } catch (const Error& error) {
      if (!has_problem) reported.problems.push_back(fmt::format("{}: left out: {}", folder.string(), error.what()));
    }
  }
  // A group of the comparison whose runs are rows of a results file has nothing to show.
  std::erase_if(reported.groups, [](const auto& group) { return group.runs.empty(); });
  for (std::size_t i = 0; i < reported.groups.size(); ++i)
    for (const auto run : reported.groups[i].runs) reported.runs[run].group = i;
  if (reported.comparison) std::ranges::copy(reported.comparison->notes, std::back_inserter(reported.problems));
  return reported;
}

// The keys whose values differ between groups, or that some groups do not have.
std::vector<std::string> differing_keys(const std::vector<ReportedGroup>& groups) {
  std::map<std::string, std::map<std::string, std::size_t>> counts;  // of each value, by key
  for (const auto& group : groups)
    for (const auto& [key, value] : group.settings) ++counts[key][value];
  std::vector<std::string> keys;
  for (const auto& [key, values] : counts)
    if (values.begin()->second < groups.size()) keys.push_back(key);
  return keys;
}

Json describe(const Comparison& comparison, const ReportedRuns& reported, const std::vector<std::string>& frontier) {
  auto json = to_json(comparison);
  if (!frontier.empty()) json["frontier"] = to_json(frontier_of(comparison, frontier[0], frontier[1]), comparison);
  json["costs"] = Json::array();
  for (const auto& id : cost_measures()) json["costs"].push_back(to_json(measure_of(id)));
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& folder = comparison.groups[i].runs.front().folder;
    const auto run = std::ranges::find(reported.runs, folder, &ReportedRun::folder);
    json["groups"][i]["color"] = run == reported.runs.end() ? Json() : Json(run->group);
  }
  return json;
}

// {"runs": [...], "groups": [...], "differing_keys", "comparison": to_json(Comparison) with "costs", "color" (the
// number of the page's group, or null) and "frontier" if two measures are given; null without one}
Json describe(const ReportedRuns& reported, const std::vector<std::string>& frontier) {
  const auto keys = differing_keys(reported.groups);
  Json json = {{"runs", Json::array()}, {"groups", Json::array()}, {"differing_keys", keys}};
  for (const auto& run : reported.runs) {
    json["runs"].push_back(run.shown);
    json["runs"].back()["group"] = run.group;
  }
  for (const auto& group : reported.groups) {
    Json settings = Json::object();
    for (const auto& key : keys)
      if (const auto found = group.settings.find(key); found != group.settings.end()) settings[key] = found->second;
    json["groups"].push_back({{"name", group.name},
                              {"task", group.task},
                              {"settings", settings},
                              {"config", group.config},
                              {"runs", group.runs}});
  }
  json["comparison"] = reported.comparison ? describe(*reported.comparison, reported, frontier) : Json();
  return json;
}

// The number of points for each of `count` curves, if all of them together may have `all` points.
std::size_t points_of_each(std::size_t all, std::size_t count, std::size_t fewest, std::size_t most) {
  return std::clamp(all / std::max<std::size_t>(1, count), fewest, most);
}

// Limits that keep a page below 10 MB: of the bytes of matrices, and of points of curves (about 20 bytes each).
constexpr std::size_t most_matrix_bytes = 6'500'000, most_points = 120'000;
constexpr std::size_t most_block_points = 60'000, most_points_of_block = 200, fewest_points_of_block = 10;
constexpr std::size_t most_points_of_curve = 1000, fewest_points_of_curve = 60;
constexpr InspectionLimits inspection_limits = {.tokens = 48, .vocabulary = 72};

class ReportMaker {
 public:
  explicit ReportMaker(const ReportOptions& options)
      : options_(options), reported_(read_reported_runs(options.runs, options.comparison)) {
    if (reported_.runs.empty())
      fail_usage("no run to report: give folders of runs; a results file only adds rows to the tables");
    if (!options.figures.empty()) figures_.emplace(options.figures);
  }

  Report make() {
    read_all_curves();
    data_ = describe(reported_, options_.comparison.frontier);
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
    data_["problems"] = reported_.problems;
    Report report{.runs = reported_.runs.size(), .groups = reported_.groups.size(), .problems = reported_.problems};
    report.figures = figures_ ? figures_->written() : 0;
    report.html = make_page(options_.title, json_text(data_));
    return report;
  }

 private:
  void note(std::size_t run, const char* what, const Error& error) {
    reported_.problems.push_back(fmt::format("{}: {}: {}", reported_.runs[run].folder.string(), what, error.what()));
  }

  void read_all_curves() {
    std::vector<LoggedCurves> by_run(reported_.runs.size());
    std::size_t count = 0;
    for (std::size_t i = 0; i < by_run.size(); ++i) {
      show_progress("reading", i, i + 1);
      try {
        by_run[i] = read_curves(RunDirectory::open(reported_.runs[i].folder, "").metrics_file());
      } catch (const Error& error) {
        note(i, "no curves", error);
      }
      count += 2 * by_run[i].curves.size();
    }
    const auto most = points_of_each(most_points, count, fewest_points_of_curve, most_points_of_curve);
    for (std::size_t i = 0; i < by_run.size(); ++i) {
      blocks_.push_back(std::move(by_run[i].blocks));
      for (const auto& [name, curve] : by_run[i].curves) {
        auto& series = curves_[name];
        series.runs.resize(by_run.size());
        averaged_ = std::max(averaged_, (curve.step.size() + most - 1) / most);
        series.runs[i] = thinned(curve, most, name == "train loss" || name == "gradient norm");
      }
    }
    for (auto& [name, series] : curves_)
      for (const auto& group : reported_.groups) series.groups.push_back(mean_curve(curves_of(group, series)));
  }

  // The curves of the runs that count in the comparison; of all runs in a group without such runs.
  std::vector<const StepCurve*> curves_of(const ReportedGroup& group, const CurveSeries& series) const {
    const auto is_compared = [&](std::size_t run) { return reported_.runs[run].compared; };
    const bool all = std::ranges::none_of(group.runs, is_compared);
    std::vector<const StepCurve*> curves;
    for (const auto run : group.runs)
      if ((all || is_compared(run)) && !series.runs[run].step.empty()) curves.push_back(&series.runs[run]);
    return curves;
  }

  // The measurements of train.diagnostics_interval, of the runs that have them.
  Json describe_blocks() const {
    std::size_t count = 0;
    for (const auto& panels : blocks_)
      for (const auto& panel : panels) count += 3 * panel.lines.size();
    const auto most = points_of_each(most_block_points, count, fewest_points_of_block, most_points_of_block);
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
    const bool writes =
        std::ranges::find(reported_.groups, "language_model", &ReportedGroup::task) != reported_.groups.end();
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
    const auto& comparison = *reported_.comparison;
    for (const auto& [name, figure] : figures_of(comparison)) figures_->write(name, figure);
    if (const auto& pair = options_.comparison.frontier; !pair.empty())
      figures_->write("frontier", figure_of(frontier_of(comparison, pair[0], pair[1]), comparison));
  }

  // The heads of all groups may not fit into the page, so the references of other groups come first, then one group of
  // each mixer, then the rest.
  std::vector<std::size_t> visiting_order() const {
    std::set<fs::path> references;
    if (reported_.comparison)
      for (const auto& group : reported_.comparison->groups)
        references.insert(reported_.comparison->groups[group.reference].runs.front().folder);
    std::set<std::string> mixers;
    std::vector<int> rank;
    std::vector<std::size_t> order;
    for (const auto& run : reported_.runs) {
      const auto& settings = reported_.groups[run.group].settings;
      const auto list = settings.find("model.mixer");
      const auto mixer = list != settings.end() ? list : settings.find("model.mixer.kind");
      const bool is_new = mixer != settings.end() && mixers.insert(mixer->second).second;
      order.push_back(rank.size());
      rank.push_back(references.contains(run.folder) ? 0 : is_new ? 1 : 2);
    }
    std::ranges::stable_sort(order, {}, [&](auto run) { return rank[run]; });
    return order;
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
        if (options_.with_insides && first && blocks_of(run.experiment.config.model) != nullptr) inspect(run, i);
      } catch (const Error& error) {
        note(i, "no text and no heads", error);
      }
    }
    for (auto* list : {&data_["texts"]["samples"], &data_["inspected"]})
      std::stable_sort(list->begin(), list->end(), [](const Json& a, const Json& b) { return a["run"] < b["run"]; });
  }

  Json text_of(const LoadedRun& run, std::size_t i) {
    Json sample = {{"run", i}};
    try {
      const auto prompt = prompt_of(run);
      sample.update({{"prompt", prompt_for(run, prompt)}, {"text", answer(run, prompt)}});
    } catch (const Error& error) {
      sample["error"] = fmt::format("no answer: {}", error.what());
    }
    return sample;
  }

  // The options with the prompt of this report, or with a text of the run's data; runs of the same data get the same
  // text.
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
      reported_.problems.push_back(fmt::format("{}: a fixed prompt in place of a text of its data: {}",
                                               run.directory.path().string(), error.what()));
    }
    return found->second;
  }

  // All runs read one text: the given one, else the continuation of the prompt by the first language model; runs of
  // other tasks read the prompt. If a run cannot read the prompt, only its answer is missing, not its heads.
  std::string inspected_text(const LoadedRun& run) {
    if (options_.text) return *options_.text;
    auto prompt = prompt_of(run);
    try {
      if (prompt.prompt) ids_of_text(run, *prompt.prompt, inspection_limits.tokens);
    } catch (const Error&) {
      prompt.prompt = text_of_data(run);
    }
    if (!is<LanguageModelConfig>(run.experiment.config.task)) return prompt_for(run, prompt);
    if (written_.empty()) {
      prompt.tokens = inspection_limits.tokens;
      written_ = prompt_for(run, prompt) + answer(run, prompt);
    }
    return written_;
  }

  void inspect(const LoadedRun& run, std::size_t i) try {
    if (matrix_bytes_ > most_matrix_bytes) {
      ++not_inspected_;
      return;
    }
    const auto& name = reported_.groups[reported_.runs[i].group].name;
    static const std::map<InspectedPart, const char*> names = {{InspectedPart::whole, ""},
                                                               {InspectedPart::encoder, "source to source, "},
                                                               {InspectedPart::decoder, "target to target, "},
                                                               {InspectedPart::cross, "target to source, "}};
    const auto inspections = inspections_of(run);
    auto parts = Json::array();
    for (const auto& inspection : inspections) {
      auto& json = parts.emplace_back(to_json(inspection, Matrices::packed));
      json["run"] = i;
      json["name"] = fmt::format("{}{}, seed {}", names.at(inspection.part), name, reported_.runs[i].seed);
    }
    const auto size = json_text(parts).size();
    if (matrix_bytes_ + size > most_matrix_bytes && !data_["inspected"].empty()) {
      ++not_inspected_;
    } else {
      matrix_bytes_ += size;
      data_["inspected"].insert(data_["inspected"].end(), parts.begin(), parts.end());
    }
    if (!figures_) return;
    for (const auto& inspection : inspections)
      for (const auto& [file, figure] : figures_of(inspection, name)) figures_->write(name + "_" + file, figure);
  } catch (const Error& error) {
    note(i, "no heads", error);
  }

  // For an encoder-decoder three inspections, the attention to the source first.
  std::vector<TextInspection> inspections_of(const LoadedRun& run) {
    const auto ids = ids_of_text(run, inspected_text(run), inspection_limits.tokens);
    if (!is<SequenceToSequenceConfig>(run.experiment.config.task)) return {inspect_text(run, ids, inspection_limits)};
    auto parts = inspect_pair(run, {.source = ids, .target = write_target(run, ids).ids}, inspection_limits);
    std::rotate(parts.begin(), parts.end() - 1, parts.end());
    return parts;
  }

  void show_progress(const char* what, std::size_t i, std::size_t place) const {
    log::progress(
        fmt::format("report: {} run {} of {}, {}", what, place, reported_.runs.size(), reported_.runs[i].name));
  }

  const ReportOptions& options_;
  ReportedRuns reported_;
  std::optional<FigureFolder> figures_;
  CurveTable curves_;
  std::vector<std::vector<BlockPanel>> blocks_;  // by run
  std::size_t averaged_ = 1;                     // lines of a log in one point, at most
  Json data_;
  std::string written_;
  std::map<std::string, std::optional<std::string>> data_texts_;  // by task and data
  std::size_t matrix_bytes_ = 0, not_inspected_ = 0;
};

}  // namespace

std::string make_page(const std::string& title, const std::string& json) {
  const auto heading = figures::escape(title), palette = figures::palette_variables();
  // "<" could end the script element or start a comment in it. JSON has it only in strings, where it can be escaped.
  const auto data = replaced(json, "<", "\\u003c");
  return fill(embedded::html, {{"title", heading},
                               {"palette", palette},
                               {"style", embedded::style},
                               {"data", data},
                               {"d3_licence", embedded::d3_licence},
                               {"d3", embedded::d3},
                               {"script", embedded::script}});
}

Report make_report(const ReportOptions& options) { return ReportMaker(options).make(); }

}  // namespace metaformer
