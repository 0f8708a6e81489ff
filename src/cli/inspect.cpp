#include <algorithm>
#include <filesystem>
#include <ranges>

#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/command_line.h"
#include "data/pairs.h"
#include "infer/answers.h"
#include "report/inspection.h"
#include "report/json.h"
#include "report/pictures.h"
#include "report/statistics.h"
#include "run/safetensors.h"

namespace metaformer {

namespace {

double mean_of(const std::vector<double>& values) { return summarise(values).mean; }

double mean_of(const LayerInspection& layer, double MetricAxioms::*value) {
  const auto values = layer.axioms | std::views::transform(value);
  return mean_of({values.begin(), values.end()});
}

// Calls work(); its errors then begin with `prefix`.
template <class Work>
auto with_prefix(std::string_view prefix, Work work) try {
  return work();
} catch (const Error& error) {
  throw Error(error.code(), fmt::format("{}: {}", prefix, error.what()));
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
  const auto& layers = inspection.layers;
  if (layers.empty()) return print_lines("the model has no blocks\n");
  if (std::ranges::none_of(layers, &LayerInspection::has_scores))
    return print_lines("mixer {}: no scores\n", inspection.mixer);
  print_lines("mixer {}; means over the heads, in percent where they are fractions\n", inspection.mixer);
  const bool crosses = inspection.part == InspectedPart::cross;
  if (crosses)
    print_lines("{:<7}{:>14}\n", "layer", "scores < 0");
  else
    print_lines("{:<7}{:>16}{:>14}{:>14}{:>18}{:>20}  {}\n", "layer", "mean distance", "scores < 0", "eigenvalues<0",
                "pairs, square < 0", "triangles violated", "form");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& layer = layers[i];
    if (!layer.has_scores()) {
      print_lines("{:<7}{}: no scores\n", i, layer.mixer);
      continue;
    }
    const auto negative = 100 * mean_of(layer.negative_scores);
    if (crosses)
      print_lines("{:<7}{:>14.1f}\n", i, negative);
    else
      print_lines("{:<7}{:>16.2f}{:>14.1f}{:>14.1f}{:>18.1f}{:>20.1f}  {}\n", i, mean_of(layer.mean_attention_distance),
                  negative, 100 * mean_of(layer, &MetricAxioms::negative_eigenvalues),
                  100 * mean_of(layer, &MetricAxioms::negative_pairs),
                  100 * mean_of(layer, &MetricAxioms::violated_triples), verdicts_of(layer));
  }
  for (std::size_t i = 0; i < layers.size() && !crosses; ++i)
    if (const auto& ranks = layers[i].distance_rank_correlation; !ranks.empty())
      print_lines("layer {}: rank correlation of distances between digits with |i - j|, by head: {:.2f}\n", i,
                  fmt::join(ranks, " "));
}

void print_norms(const DepthNorms& norms, const char* title) {
  print_lines("{}\n{:<7}{:>12}{:>12}{:>14}{:>12}\n", title, "layer", "mixer", "stream", "feed-forward", "stream");
  print_lines("{:<7}{:>12}{:>12.4g}\n", "", "", norms.embedding);
  for (std::size_t i = 0; i < norms.after_mixer.size(); ++i)
    print_lines("{:<7}{:>12.4g}{:>12.4g}{:>14.4g}{:>12.4g}\n", i, norms.mixer_branch[i], norms.after_mixer[i],
                norms.feed_forward_branch[i], norms.after_feed_forward[i]);
}

// The norm of each mixer's output divided by that of its input, a measure that all mixers have.
void print_gains(const TextInspection& inspection) {
  const auto gain = [](const DepthNorms& norms, std::size_t i) { return norms.mixer_branch[i] / norms.mixer_input[i]; };
  print_lines("norm of a mixer's output / norm of its input\n{:<7}{:>10}{:>10}  {}\n", "layer", "start", "now",
              "mixer");
  for (std::size_t i = 0; i < inspection.layers.size(); ++i)
    print_lines("{:<7}{:>10}{:>10.4g}  {}\n", i,
                inspection.norms_at_start ? fmt::format("{:.4g}", gain(*inspection.norms_at_start, i)) : "",
                gain(inspection.norms, i), inspection.layers[i].mixer);
}

void print_text(const TextInspection& inspection, const std::filesystem::path& checkpoint) {
  const auto part = inspection.part;
  print_lines("{}{} tokens{} of {}\n", part == InspectedPart::whole ? "" : fmt::format("{}: ", to_string(part)),
              inspection.tokens.size(),
              part == InspectedPart::cross ? fmt::format(" that see {}", inspection.keys.size()) : "",
              checkpoint.string());
  print_layers(inspection);
  if (inspection.part == InspectedPart::cross) return;
  print_norms(inspection.norms, "norm of a token's vector, mean over the text");
  print_gains(inspection);
}

void print_split(const SplitInspection& inspection) {
  print_norms(inspection.gradients.stream, "norm of the gradient with respect to the stream");
  if (const auto& losses = inspection.loss_by_position; !losses.empty())
    print_lines("loss by position: {:.4f} at {}, {:.4f} at {}\n", losses.front().loss, losses.front().position,
                losses.back().loss, losses.back().position);
  if (inspection.effective_context)
    print_lines("effective context: {} of {} tokens (loss within 1%)\n", *inspection.effective_context,
                inspection.loss_by_context.back().tokens);
}

struct InspectArguments {
  RunChoice choice;
  std::optional<std::string> text;
  std::string file, beside, out;
  InspectionLimits limits;
  SplitLimits split_limits;
  bool without_data = false, without_pictures = false;
  bool offline = false, json = false;
  std::vector<std::string> split_flags;  // those on the command line
};

// The first text of the validation split, without padding; for a sorter a random one, because in its first lists all
// numbers are equal.
std::vector<std::int32_t> validation_text(const Task& task, std::int64_t tokens, bool is_sorter) {
  const auto batch = is_sorter ? task.batches->random_batch(Split::validation, 0, torch::kCPU)
                               : task.batches->evaluation_batch(Split::validation, 0, torch::kCPU);
  auto row_c = batch.ids_bc[0];
  if (batch.segments_bc.defined()) row_c = row_c.masked_select(batch.segments_bc[0] >= 0);
  if (!is_sorter) row_c = row_c.narrow(0, 0, std::min(tokens, row_c.size(0)));
  const auto narrow_c = row_c.to(torch::kInt).contiguous();
  return {narrow_c.const_data_ptr<std::int32_t>(), narrow_c.const_data_ptr<std::int32_t>() + narrow_c.numel()};
}

// The text of --file or --text; nothing if neither is given.
std::optional<std::string> given_text(const InspectArguments& arguments) {
  if (arguments.file.empty() && !arguments.text) return std::nullopt;
  auto text = arguments.file.empty() ? *arguments.text : InputFile(arguments.file).read_to_end();
  drop_byte_order_mark(text);
  return text;
}

std::vector<std::int32_t> ids_of(const InspectArguments& arguments, const LoadedRun& run, const std::string& text) {
  const auto ids = with_prefix(arguments.file.empty() ? "--text" : arguments.file,
                               [&] { return ids_of_text(run, text, arguments.limits.tokens); });
  const auto all = run.codec.tokenizer->encode(text).size();
  if (all > ids.size())
    log::warning("the text has {} tokens; the first {} are inspected (--tokens, model.context)", all, ids.size());
  return ids;
}

// The given text, with the target that the run writes for it; else the longest pair of the validation split.
EncodedPair chosen_pair(const InspectArguments& arguments, const LoadedRun& run) {
  if (const auto text = given_text(arguments)) {
    const auto source = ids_of(arguments, run, arguments.file.empty() ? *text : without_last_break(*text));
    return {.source = source, .target = write_target(run, source).ids};
  }
  if (arguments.without_data) fail_usage("--no-data needs --text or --file");
  return task_of(run, arguments.offline).pairs->pair(Split::validation, 0);
}

// The results of an inspection: one entry for a text, or one for each part of a pair.
struct Findings {
  std::vector<TextInspection> texts;
  std::optional<SplitInspection> split;
  std::vector<TextInspection> beside;  // empty, or the same parts of the other run
};

nlohmann::ordered_json to_json(const Findings& findings, const LoadedRun& run) {
  nlohmann::ordered_json json = {{"checkpoint", run.checkpoint.string()}, {"step", run.progress.step}};
  for (const auto& text : findings.texts) {
    if (text.part == InspectedPart::whole)
      json.update(to_json(text));
    else
      json[to_string(text.part)] = to_json(text);
  }
  if (findings.split) json["validation"] = to_json(*findings.split);
  return json;
}

void write_files(const std::filesystem::path& folder, const Findings& findings, const nlohmann::ordered_json& json,
                 const std::string& name, bool with_pictures) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(ExitCode::failure, fmt::format("{}: {}", folder.string(), error.message()));
  NamedTensors tensors;
  for (const auto& text : findings.texts)
    for (auto& tensor : to_tensors(text)) tensors.push_back(std::move(tensor));
  write_file_atomically(folder / "inspection.safetensors", to_safetensors(tensors));
  write_file_atomically(folder / "inspection.json", json_text(json, 2) + "\n");
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))  // of an earlier inspection
    if (is_picture(entry.path().filename().string())) std::filesystem::remove(entry.path(), error);
  if (!with_pictures) return;
  const auto write = [&](const std::vector<NamedFigure>& pictures) {
    for (const auto& [file, figure] : pictures)
      write_file_atomically(folder / (file + ".svg"), figures::to_svg(figure));
  };
  for (std::size_t i = 0; i < findings.texts.size(); ++i)
    write(figures_of(findings.texts[i], name, findings.beside.empty() ? nullptr : &findings.beside[i]));
  if (findings.split) write(figures_of(*findings.split, name));
}

LoadedRun load_other(const InspectArguments& arguments, const LoadedRun& run) {
  if (!std::filesystem::exists(arguments.beside)) fail_usage("--beside {}: no such run", arguments.beside);
  auto other = load_run(arguments.beside, arguments.choice.checkpoint, arguments.choice.device);
  if (run.experiment.config.task.index() != other.experiment.config.task.index())
    fail_usage("--beside {}: its task is {}, and that of the run is {}", arguments.beside,
               kind_of(other.experiment.config.task), kind_of(run.experiment.config.task));
  return other;
}

// The same text encoded by the other run's tokenizer. Masks, whose ids follow those of the tokenizer, keep their
// places.
std::vector<std::int32_t> ids_in_other(const LoadedRun& run, const LoadedRun& other,
                                       const std::vector<std::int32_t>& ids) {
  const auto &from = *run.codec.tokenizer, &to = *other.codec.tokenizer;
  std::vector<std::int32_t> found;
  for (auto begin = ids.begin(); begin != ids.end();) {
    const auto mask = std::find(begin, ids.end(), static_cast<std::int32_t>(from.vocabulary_size()));
    const auto part = to.encode(from.decode({begin, mask}));
    found.insert(found.end(), part.begin(), part.end());
    if (mask != ids.end()) found.push_back(static_cast<std::int32_t>(to.vocabulary_size()));
    begin = mask == ids.end() ? mask : mask + 1;
  }
  return found;
}

// The text for the other run, cut to the number of tokens that are inspected.
std::vector<std::int32_t> text_in_other(const InspectArguments& arguments, const LoadedRun& run, const LoadedRun& other,
                                        const std::vector<std::int32_t>& ids) {
  if (list_task(run.experiment.config.task)) return ids;
  auto found = with_prefix("--beside " + arguments.beside, [&] { return ids_in_other(run, other, ids); });
  if (found.empty()) fail_data("--beside {}: its tokenizer finds no token in the text", arguments.beside);
  const auto most = std::min(arguments.limits.tokens, context_of(other.experiment.config.model));
  if (std::ssize(found) > most) found.resize(static_cast<std::size_t>(most));
  return found;
}

Findings inspect_whole(const InspectArguments& arguments, const LoadedRun& run) {
  std::optional<Task> task;
  if (!arguments.without_data) task = task_of(run, arguments.offline);
  const auto text = given_text(arguments);
  if (!text && !task) fail_usage("--no-data needs --text or --file");
  const bool is_sorter = list_task(run.experiment.config.task).has_value();
  const auto ids = text ? ids_of(arguments, run, *text) : validation_text(*task, arguments.limits.tokens, is_sorter);
  Findings findings;
  findings.texts.push_back(inspect_text(run, ids, arguments.limits));
  if (!arguments.beside.empty()) {
    const auto other = load_other(arguments, run);
    findings.beside.push_back(inspect_text(other, text_in_other(arguments, run, other, ids), arguments.limits));
  }
  if (task) findings.split = inspect_split(run, *task, arguments.split_limits);
  return findings;
}

Findings inspect_translation(const InspectArguments& arguments, const LoadedRun& run) {
  require_no_flags(arguments.split_flags, run);
  const auto pair = chosen_pair(arguments, run);
  Findings findings{.texts = inspect_pair(run, pair, arguments.limits)};
  if (!arguments.beside.empty()) {
    const auto other = load_other(arguments, run);
    findings.beside = inspect_pair(
        other, {.source = ids_in_other(run, other, pair.source), .target = ids_in_other(run, other, pair.target)},
        arguments.limits);
  }
  return findings;
}

void run_inspect(const InspectArguments& arguments) {
  const auto run = arguments.choice.load();
  require_transformer(run);
  const auto findings = is<SequenceToSequenceConfig>(run.experiment.config.task) ? inspect_translation(arguments, run)
                                                                                 : inspect_whole(arguments, run);
  const auto json = to_json(findings, run);
  const auto folder = arguments.out.empty() ? run.directory.path() / "inspect" : std::filesystem::path(arguments.out);
  write_files(folder, findings, json, std::filesystem::weakly_canonical(run.directory.path()).filename().string(),
              !arguments.without_pictures);
  if (arguments.json) return print_json(json);
  for (const auto& text : findings.texts) print_text(text, run.checkpoint);
  if (findings.split) print_split(*findings.split);
  print_lines(folder.string() + "\n");
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  auto& command = *app.add_subcommand(
      "inspect", "show attention maps, score forms, distances between tokens, norms and losses by depth and position");
  auto arguments = std::make_shared<InspectArguments>();
  arguments->choice.add_to(command);
  arguments->choice.add_context_to(command);
  arguments->choice.add_options_to(command);
  auto* text =
      may_be_empty(command.add_option("--text", arguments->text,
                                      "text, a sorter's list, or a source, for which the run generates a target; "
                                      "default: the start of the validation split, or its longest pair"));
  command.add_option("--file", arguments->file, "file with the text; -: standard input")->excludes(text);
  add_whole_number(command, "--tokens", arguments->limits.tokens, 1, most_inspected_tokens,
                   "largest number of tokens of the text; has no effect on a sorter's list");
  add_whole_number(command, "--batches", arguments->split_limits.batches, 0, std::int64_t{1} << 40,
                   "evaluation batches for the loss by position; 0: the whole validation split");
  add_text(command, "--beside", arguments->beside, "RUN", "another run, whose forms are drawn below those of the run");
  command.add_option("--out", arguments->out, "folder for the files; default: inspect/ in the run folder");
  command.add_flag("--no-data", arguments->without_data,
                   "inspect only the text: no gradients, no loss by position, no effective context");
  command.add_flag("--no-pictures", arguments->without_pictures, "write no SVG files");
  add_offline(command, arguments->offline);
  command.add_flag("--json", arguments->json, "the content of inspection.json on stdout, on one line");
  command.footer(
      "Writes inspection.safetensors (arrays), inspection.json (numbers) and pictures (SVG); docs/inspect.md\n"
      "describes them. A run of sequence_to_sequence shows the attention within and between source and target.\n"
      "Examples:\n"
      "  metaformer inspect --run runs/latest --text \"To be, or not to be\"\n"
      "  metaformer inspect --run runs/metric --beside runs/scaled_dot_product --out pictures\n"
      "  metaformer inspect --run runs/sorter --text \"2 0 1 1 0 2\" --json");
  command.callback([arguments, &command] {
    arguments->split_flags = given_flags(command, {"--batches"});
    run_inspect(*arguments);
  });
}

}  // namespace metaformer
