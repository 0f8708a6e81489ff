#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/gzip.h"
#include "base/line_reader.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "cli/input_file.h"
#include "cli/process_choice.h"
#include "data/sources/file_format.h"
#include "data/sources/labelled_table.h"
#include "data/token_rows.h"
#include "infer/shared_prediction.h"

namespace metaformer {

namespace {

struct PredictArguments {
  RunChoice choice;
  ProcessChoice processes;
  std::string file = "-";
  std::string format = "auto";
  std::int64_t batch_size = 32;
  bool json = false;
};

TableFormat parse_format(const std::string& name) {
  return choose<TableFormat>("--format", name,
                             {{"auto", TableFormat::automatic},
                              {"text", TableFormat::text},
                              {"csv", TableFormat::csv},
                              {"tsv", TableFormat::tsv},
                              {"jsonl", TableFormat::jsonl}});
}

constexpr std::size_t longest_line = 1 << 20;

// Answers texts in their order: a batch at a time, or one for each process.
class TextPredictor {
 public:
  TextPredictor(const PredictArguments& arguments, const LoadedRun& run, std::string source, ProcessGroup& group)
      : arguments_(arguments), run_(run), source_(std::move(source)), group_(group) {}

  void add(const Line& line) {
    if (line.too_long) return refuse(line.number, fmt::format("the line is longer than {} bytes", longest_line));
    add(line.text, line.number);
  }

  // The text of a line, or of a table's row that starts there.
  void add(const std::string& text, std::int64_t line) {
    bool cut = false;
    try {
      texts_.push_back(encode(text, cut));
    } catch (const Error& error) {
      return refuse(line, error.what());
    }
    longest_ = std::max(longest_, texts_.back().size());
    answers_.push_back({.line = line, .problem = {}, .batch = batches_.size(), .text = texts_.size() - 1, .cut = cut});
    ++lines_;
    if (is_full()) end_batch();
  }

  void refuse(std::int64_t line, const std::string& problem) {
    constexpr std::size_t most_answers = 1 << 16;
    answers_.push_back({.line = line, .problem = problem, .batch = 0, .text = 0, .cut = false});
    ++lines_;
    if (answers_.size() >= most_answers) flush();
  }

  // Answers all that it has been given.
  void flush() {
    if (!texts_.empty()) batches_.push_back(std::exchange(texts_, {}));
    const auto predictions =
        batches_.empty() ? std::vector<std::vector<Prediction>>{} : predict_together(group_, run_, batches_);
    std::string shown;
    for (const auto& answer : answers_) {
      if (!answer.problem.empty()) {
        ++malformed_;
        log::warning("{}:{}: no prediction: {}", source_, answer.line, answer.problem);
      }
      shown += describe(answer, answer.problem.empty() ? &predictions[answer.batch][answer.text] : nullptr) + "\n";
    }
    cut_ += std::count_if(answers_.begin(), answers_.end(), [](const Answer& answer) { return answer.cut; });
    answers_.clear();
    batches_.clear();
    longest_ = 0;
    if (!shown.empty()) print(shown);
  }

  void finish() const {
    if (cut_ > 0)
      log::warning("{}: {} lines are longer than the model's {} tokens and were cut off", source_, cut_,
                   context_of(run_.experiment.config.model));
    if (malformed_ > 0)
      throw Error(ExitCode::data,
                  fmt::format("{}: {} of {} lines got no prediction; see above", source_, malformed_, lines_));
  }

 private:
  struct Answer {
    std::int64_t line;
    std::string problem;      // why there is no prediction
    std::size_t batch, text;  // which text of which batch
    bool cut;
  };

  // Long texts must not fill the memory, whatever the batch size.
  bool is_full() const {
    constexpr std::size_t most_padded_tokens = 1 << 17;
    return texts_.size() >= static_cast<std::size_t>(arguments_.batch_size) ||
           texts_.size() * longest_ >= most_padded_tokens;
  }

  void end_batch() {
    batches_.push_back(std::exchange(texts_, {}));
    longest_ = 0;
    if (std::ssize(batches_) == group_.size()) flush();
  }

  std::vector<std::int32_t> encode(const std::string& text, bool& cut) const {
    auto ids = run_.codec.tokenizer->encode(text);
    if (ids.empty()) throw Error(ExitCode::data, "the line is blank");
    cut = truncate(ids, context_of(run_.experiment.config.model), classification(run_.experiment.config).truncation);
    return ids;
  }

  std::string describe(const Answer& answer, const Prediction* prediction) const {
    nlohmann::ordered_json json = {{"line", answer.line}};
    if (prediction == nullptr) {
      json["error"] = answer.problem;
      return arguments_.json ? to_line(json) : "\t";
    }
    const auto& labels = run_.codec.labels;
    const double probability = prediction->probabilities[prediction->label];
    if (!arguments_.json) return fmt::format("{}\t{:.4f}", on_one_line(labels[prediction->label]), probability);
    json["label"] = labels[prediction->label];
    json["probability"] = probability;
    for (std::size_t i = 0; i < labels.size(); ++i) json["probabilities"][labels[i]] = prediction->probabilities[i];
    json["cut"] = answer.cut;
    return to_line(json);
  }

  // A label from a quoted field may contain the characters that separate fields of the output.
  static std::string on_one_line(std::string label) {
    std::replace_if(
        label.begin(), label.end(), [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
    return label;
  }

  const PredictArguments& arguments_;
  const LoadedRun& run_;
  std::string source_;
  ProcessGroup& group_;
  std::vector<Answer> answers_;
  std::vector<TextBatch> batches_;  // full ones, fewer than processes
  TextBatch texts_;                 // of the one that is begun
  std::size_t longest_ = 0;         // of texts_, in tokens
  std::int64_t lines_ = 0, malformed_ = 0, cut_ = 0;
};

void predict_lines(int file, const std::string& name, TextPredictor& predictor) {
  LineReader reader(file, name, longest_line);
  while (const auto line = reader.next()) {
    predictor.add(*line);
    // A slow writer gets answers line by line, a fast one in batches.
    if (!reader.is_ready()) predictor.flush();
  }
}

void predict_lines(const InputFile& input, TextPredictor& predictor) {
  log::info("{}: plain lines, a text on every line", input.name());
  std::string start(2, '\0');
  const bool is_packed = ::pread(input.descriptor(), start.data(), start.size(), 0) == 2 && is_gzip(start);
  if (!is_packed) return predict_lines(input.descriptor(), input.name(), predictor);  // a pipe too
  constexpr std::uintmax_t most_bytes = std::uintmax_t{16} << 30;
  const InputFile unpacked(input.name(), unpack_gzip(input.read_to_end(), most_bytes, input.name()));
  predict_lines(unpacked.descriptor(), unpacked.name(), predictor);
}

// Reads the fields that the run was trained on.
void predict_table(const InputFile& input, LabelledDataConfig config, TextPredictor& predictor) {
  const bool is_json = config.format == TableFormat::jsonl;
  if (is_json) config.header = TableHeader::automatic;  // the training table may have been another format's
  const auto table = read_text_table(input.read_to_end(), input.name(), config);
  const auto field = in_quotes(config.text_field);
  log::info("{}: {}", input.name(),
            is_json ? fmt::format("JSON lines; the texts are member {}", field)
            : table.has_guessed_columns
                ? fmt::format("{} without a header; the texts are column 1", to_string(config.format))
                : fmt::format("{} {} a header; the texts are column {}", to_string(config.format),
                              table.has_header ? "with" : "without", field));
  auto malformed = table.malformed.begin();
  const auto refuse_before = [&](std::int64_t line) {
    for (; malformed != table.malformed.end() && malformed->line < line; ++malformed)
      predictor.refuse(malformed->line, malformed->why);
  };
  for (const auto& row : table.rows) {
    refuse_before(row.line);
    predictor.add(row.text, row.line);
  }
  refuse_before(std::numeric_limits<std::int64_t>::max());
}

void predict_file(const PredictArguments& arguments, TableFormat format, const InputFile& input, const LoadedRun& run,
                  ProcessGroup& group) {
  TextPredictor predictor(arguments, run, input.name(), group);
  if (format == TableFormat::text) {
    predict_lines(input, predictor);
  } else {
    auto config = classification(run.experiment.config).data;
    config.format = format;
    predict_table(input, std::move(config), predictor);
  }
  predictor.flush();
  end_predictions(group);
  predictor.finish();
}

void run_predict(const PredictArguments& arguments, TableFormat format, ProcessGroup& group) {
  const auto& choice = arguments.choice;
  const auto input = group.is_first() ? std::make_unique<InputFile>(arguments.file) : nullptr;
  const auto run = load_run(choice.run, choice.checkpoint, device_for(group, choice.device));
  if (!is<ClassificationConfig>(run.experiment.config.task))
    throw Error(ExitCode::usage, fmt::format("--run {}: its task is {}; predict needs a classifier",
                                             run.directory.path().string(), kind_of(run.experiment.config.task)));
  if (!input) return help_predict(group, run);
  if (format == TableFormat::automatic) format = format_by_name(arguments.file).value_or(TableFormat::text);
  predict_file(arguments, format, *input, run, group);
}

}  // namespace

void add_predict_command(CLI::App& app) {
  auto& command = *app.add_subcommand("predict", "predict the classes of texts in plain lines or in a table");
  auto arguments = std::make_shared<PredictArguments>();
  arguments->choice.add_to(command);
  command.add_option("file", arguments->file, "lines of text, or a table (csv, tsv, jsonl); default: standard input")
      ->capture_default_str();
  command
      .add_option("--format", arguments->format,
                  "format of the file; text: plain lines; auto: by the file's name, else text. In a table the run's "
                  "data.text_field names the column or member to read")
      ->type_name("auto|text|csv|tsv|jsonl")
      ->capture_default_str();
  command.add_option("--batch-size", arguments->batch_size, "texts per forward pass")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}));
  arguments->processes.add_to(command);
  command.add_flag("--json", arguments->json, "one line of JSON per text, with the probability of every class");
  command.footer(
      "Prints label, tab, probability for every line or row, in order; plain lines are answered as soon as they come.\n"
      "A text that cannot be read (not UTF-8, blank, a line over 1 MiB, a malformed row) is named on stderr and gets\n"
      "empty fields; the exit code is then 3. Texts longer than the model's context are cut off.\n"
      "With several processes the first reads, and gives each a batch at a time.\n"
      "Examples:\n"
      "  metaformer predict --run runs/reviews reviews.txt > labels.tsv\n"
      "  metaformer predict --run runs/reviews new.csv --json --processes 2\n"
      "  tail -f comments.txt | metaformer predict --run runs/reviews --json");
  command.callback([arguments] {
    const auto format = parse_format(arguments->format);
    arguments->processes.run([&](ProcessGroup& group) { run_predict(*arguments, format, group); });
  });
}

}  // namespace metaformer
