#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/input_file.h"
#include "inspect/pictures.h"
#include "run/environment.h"
#include "run/safetensors.h"
#include "tasks/make_task.h"
#include "text/make_tokenizer.h"

namespace metaformer {

namespace {

struct InspectArguments {
  RunChoice choice;
  std::optional<std::string> text;
  std::string file, beside, out;
  InspectionLimits limits;
  SplitLimits split_limits;
  bool without_data = false, without_pictures = false;
  bool offline = false, json = false;
};

// The first text of the validation split, without padding; of a sorter, whose first lists are all equal numbers, one
// drawn from it.
std::vector<std::int32_t> validation_text(const Task& task, std::int64_t tokens, bool is_sorter) {
  const auto batch = is_sorter ? task.batches->random_batch(Split::validation, 0, torch::kCPU)
                               : task.batches->evaluation_batch(Split::validation, 0, torch::kCPU);
  auto row_c = batch.ids_bc[0];
  if (batch.segments_bc.defined()) row_c = row_c.masked_select(batch.segments_bc[0] >= 0);
  if (!is_sorter) row_c = row_c.narrow(0, 0, std::min(tokens, row_c.size(0)));
  const auto narrow_c = row_c.to(torch::kInt).contiguous();
  return {narrow_c.const_data_ptr<std::int32_t>(), narrow_c.const_data_ptr<std::int32_t>() + narrow_c.numel()};
}

std::vector<std::int32_t> given_ids(const InspectArguments& arguments, const LoadedRun& run, const std::string& text) {
  auto ids = ids_of_text(run, text, arguments.limits.tokens);
  const auto all = run.codec.tokenizer->encode(text).size();
  if (all > ids.size())
    log::warning("the text has {} tokens; the first {} are inspected (--tokens, model.context)", all, ids.size());
  return ids;
}

std::vector<std::int32_t> chosen_ids(const InspectArguments& arguments, const LoadedRun& run, const Task* task) {
  if (!arguments.file.empty()) return given_ids(arguments, run, InputFile(arguments.file).read_to_end());
  if (arguments.text) return given_ids(arguments, run, *arguments.text);
  if (task == nullptr) throw Error(ExitCode::usage, "--no-data needs --text or --file");
  return validation_text(*task, arguments.limits.tokens, list_task(run.experiment.config.task).has_value());
}

double mean_of(const LayerInspection& layer, double MetricAxioms::*value) {
  double sum = 0;
  for (const auto& axioms : layer.axioms) sum += axioms.*value;
  return sum / static_cast<double>(layer.axioms.size());
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::string verdicts_of(const LayerInspection& layer) {
  std::string text;
  for (const auto& axioms : layer.axioms) {
    const auto verdict = to_string(axioms.verdict);
    if (text.find(verdict) == std::string::npos) text += (text.empty() ? "" : ", ") + std::string(verdict);
  }
  return text;
}

void print_layers(const TextInspection& inspection) {
  if (inspection.layers.empty()) return print_lines("the model has no blocks\n");
  if (inspection.vocabulary.empty()) {
    print_lines(fmt::format("mixer {}: it has no scores\n", inspection.mixer));
    return;
  }
  const bool ranks = !inspection.layers.front().distance_rank_correlation.empty();
  print_lines(fmt::format("mixer {}; means over the heads, in percent where they are fractions\n", inspection.mixer));
  print_lines(fmt::format("{:<7}{:>16}{:>14}{:>14}{:>18}{:>20}  {}\n", "layer", "mean distance", "scores < 0",
                          "eigenvalues<0", "pairs, square < 0", "triangles violated", "form"));
  for (std::size_t i = 0; i < inspection.layers.size(); ++i) {
    const auto& layer = inspection.layers[i];
    print_lines(fmt::format("{:<7}{:>16.2f}{:>14.1f}{:>14.1f}{:>18.1f}{:>20.1f}  {}\n", i,
                            mean_of(layer.mean_attention_distance), 100 * mean_of(layer.negative_scores),
                            100 * mean_of(layer, &MetricAxioms::negative_eigenvalues),
                            100 * mean_of(layer, &MetricAxioms::negative_pairs),
                            100 * mean_of(layer, &MetricAxioms::violated_triples), verdicts_of(layer)));
  }
  if (!ranks) return;
  for (std::size_t i = 0; i < inspection.layers.size(); ++i) {
    print_lines(fmt::format("layer {}: rank correlation of distances between digits with |i - j|, by head:", i));
    for (const double value : inspection.layers[i].distance_rank_correlation)
      print_lines(fmt::format(" {:.2f}", value));
    print_lines("\n");
  }
}

void print_norms(const DepthNorms& norms, const char* title) {
  print_lines(
      fmt::format("{}\n{:<7}{:>12}{:>12}{:>14}{:>12}\n", title, "layer", "mixer", "stream", "feed-forward", "stream"));
  print_lines(fmt::format("{:<7}{:>12}{:>12.4g}\n", "", "", norms.embedding));
  for (std::size_t i = 0; i < norms.after_mixer.size(); ++i)
    print_lines(fmt::format("{:<7}{:>12.4g}{:>12.4g}{:>14.4g}{:>12.4g}\n", i, norms.mixer_branch[i],
                            norms.after_mixer[i], norms.feed_forward_branch[i], norms.after_feed_forward[i]));
}

void print_split(const SplitInspection& inspection) {
  print_norms(inspection.gradients.stream, "norm of the gradient with respect to the stream");
  if (const auto& losses = inspection.loss_by_position; !losses.empty())
    print_lines(fmt::format("loss by position: {:.4f} at {}, {:.4f} at {}\n", losses.front().loss,
                            losses.front().position, losses.back().loss, losses.back().position));
  if (inspection.effective_context)
    print_lines(fmt::format("effective context: {} of {} tokens (loss within 1%)\n", *inspection.effective_context,
                            inspection.loss_by_context.back().tokens));
}

// What one inspection gathers.
struct Findings {
  TextInspection text;
  std::optional<SplitInspection> split;
  std::optional<TextInspection> beside;
};

nlohmann::ordered_json to_json(const Findings& findings, const LoadedRun& run) {
  nlohmann::ordered_json json = {{"checkpoint", run.checkpoint.string()}, {"step", run.progress.step}};
  json.update(to_json(findings.text));
  if (findings.split) json["validation"] = to_json(*findings.split);
  return json;
}

// Those of an earlier inspection, of another run perhaps, by the names that they have here.
void remove_pictures(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (is_picture(entry.path().filename().string())) std::filesystem::remove(entry.path(), error);
}

void write_files(const std::filesystem::path& folder, const Findings& findings, const nlohmann::ordered_json& json,
                 const std::string& name, bool with_pictures) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(ExitCode::failure, fmt::format("{}: {}", folder.string(), error.message()));
  write_file_atomically(folder / "inspection.safetensors", to_safetensors(to_tensors(findings.text)));
  write_file_atomically(folder / "inspection.json", json_text(json, 2) + "\n");
  remove_pictures(folder);
  if (!with_pictures) return;
  auto pictures = figures_of(findings.text, name, findings.beside ? &*findings.beside : nullptr);
  if (findings.split)
    for (auto& picture : figures_of(*findings.split, name)) pictures.push_back(std::move(picture));
  for (const auto& [file, figure] : pictures) write_file_atomically(folder / (file + ".svg"), figures::to_svg(figure));
}

std::filesystem::path folder_of(const InspectArguments& arguments, const LoadedRun& run) {
  return arguments.out.empty() ? run.directory.path() / "inspect" : std::filesystem::path(arguments.out);
}

// The same text in another run, by its own tokenizer where it differs.
std::optional<TextInspection> inspect_other(const InspectArguments& arguments, const LoadedRun& run,
                                            const std::vector<std::int32_t>& ids) {
  if (arguments.beside.empty()) return std::nullopt;
  if (!std::filesystem::exists(arguments.beside))
    throw Error(ExitCode::usage, fmt::format("--beside {}: no such run", arguments.beside));
  const auto other = load_run(arguments.beside, arguments.choice.checkpoint, arguments.choice.device);
  if (run.experiment.config.task.index() != other.experiment.config.task.index())
    throw Error(ExitCode::usage,
                fmt::format("--beside {}: its task is {}, and that of the run is {}", arguments.beside,
                            kind_of(other.experiment.config.task), kind_of(run.experiment.config.task)));
  if (list_task(run.experiment.config.task)) return inspect_text(other, ids, arguments.limits);
  const auto text = run.codec.tokenizer->decode(ids);
  return inspect_text(other, ids_of_text(other, text, arguments.limits.tokens), arguments.limits);
}

// With the numbering of the checkpoint, as evaluation has it. The run keeps its codec.
Task task_of(const LoadedRun& run, bool offline) {
  Codec codec{.tokenizer = load_tokenizer(run.codec.tokenizer->to_json().dump(), "the run's tokenizer"),
              .labels = run.codec.labels};
  auto task = make_task(run.experiment.config, offline, std::move(codec));
  if (!has_same_data(run.directory, task.data->description()))
    log::warning("{}: the data are not what this run was trained on; its environment.json names those",
                 run.directory.path().string());
  return task;
}

std::string name_of(const LoadedRun& run) {
  return std::filesystem::weakly_canonical(run.directory.path()).filename().string();
}

void run_inspect(const InspectArguments& arguments) {
  const auto run =
      load_run(arguments.choice.run, arguments.choice.checkpoint, arguments.choice.device, arguments.choice.changes);
  require_transformer(run);
  std::optional<Task> task;
  if (!arguments.without_data) task = task_of(run, arguments.offline);
  const auto ids = chosen_ids(arguments, run, task ? &*task : nullptr);
  Findings findings{.text = inspect_text(run, ids, arguments.limits)};
  findings.beside = inspect_other(arguments, run, ids);
  if (task) findings.split = inspect_split(run, *task, arguments.split_limits);
  const auto json = to_json(findings, run);
  const auto folder = folder_of(arguments, run);
  write_files(folder, findings, json, name_of(run), !arguments.without_pictures);
  if (arguments.json) return print_json(json);
  print_lines(fmt::format("{} tokens of {}\n", findings.text.tokens.size(), run.checkpoint.string()));
  print_layers(findings.text);
  print_norms(findings.text.norms, "norm of a token's vector, mean over the text");
  if (findings.split) print_split(*findings.split);
  print_lines(folder.string() + "\n");
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  auto& command = *app.add_subcommand(
      "inspect", "attention maps, score forms, distances between tokens, norms and losses by depth and position");
  auto arguments = std::make_shared<InspectArguments>();
  arguments->choice.add_to(command);
  arguments->choice.add_context_to(command);
  auto* text = command.add_option("--text", arguments->text,
                                  "text, or a sorter's list; default: the start of the validation split");
  command.add_option("--file", arguments->file, "file with the text; -: standard input")->excludes(text);
  command.add_option("--tokens", arguments->limits.tokens, "tokens of the text, at most; not of a sorter's list")
      ->capture_default_str()
      ->transform(whole_number(1, most_inspected_tokens));
  command
      .add_option("--batches", arguments->split_limits.batches,
                  "evaluation batches for the loss by position; 0: the whole validation split")
      ->capture_default_str()
      ->transform(whole_number(0, std::int64_t{1} << 40));
  command.add_option("--beside", arguments->beside, "another run, whose forms are drawn below those of the run")
      ->type_name("RUN");
  command.add_option("--out", arguments->out, "folder for the files; default: inspect/ in the run folder");
  command.add_flag("--no-data", arguments->without_data,
                   "only what the text shows: no gradients, no loss by position, no effective context");
  command.add_flag("--no-pictures", arguments->without_pictures, "write no SVG files");
  command.add_flag("--offline", arguments->offline, "never download a corpus");
  command.add_flag("--json", arguments->json, "the content of inspection.json on stdout, on one line");
  command.footer(
      "Writes inspection.safetensors (arrays), inspection.json (numbers) and pictures (SVG); docs/inspect.md\n"
      "describes them.\n"
      "Examples:\n"
      "  metaformer inspect --run runs/latest --text \"To be, or not to be\"\n"
      "  metaformer inspect --run runs/metric --beside runs/scaled_dot_product --out pictures\n"
      "  metaformer inspect --run runs/sorter --text \"2 0 1 1 0 2\" --json");
  command.callback([arguments] { run_inspect(*arguments); });
}

}  // namespace metaformer
