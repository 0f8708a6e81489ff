#include <algorithm>
#include <chrono>
#include <limits>
#include <sstream>

#include "base/archive.h"
#include "base/log.h"
#include "base/rows.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "cli/command_line.h"
#include "data/labelled.h"
#include "data/pairs.h"
#include "data/tables.h"
#include "infer/answers.h"

namespace metaformer {

namespace {

struct PredictArguments {
  RunChoice choice;
  ProcessChoice processes;
  std::string file = "-";
  TableFormat format = TableFormat::automatic;
  std::optional<std::string> column;
  TableHeader header = TableHeader::automatic;
  std::int64_t batch_size = 32;
  BeamOptions beam;
  std::optional<double> threshold;
  bool json = false, scores = false, uncalibrated = false;
};

constexpr std::size_t longest_line = 1 << 20;

// Answers texts in their order: a batch at a time, or with several processes a batch for each.
class TextPredictor {
 public:
  TextPredictor(const PredictArguments& arguments, const TextAnswers& answers, std::string source, ProcessGroup& group)
      : arguments_(arguments), text_answers_(answers), source_(std::move(source)), group_(group) {}

  // Adds the text of a line, or of a table's row that starts at this line.
  void add(const std::string& text, std::int64_t line) {
    bool cut = false;
    try {
      texts_.push_back(text_answers_.encode(text, cut));
    } catch (const Error& error) {
      return refuse(line, error.what());
    }
    longest_ = std::max(longest_, texts_.back().size());
    answers_.push_back({.line = line, .problem = {}, .batch = batches_.size(), .text = texts_.size() - 1, .cut = cut});
    // Long texts and wide beams must not fill the memory at any batch size.
    constexpr std::size_t most_padded_tokens = 1 << 17;
    const auto hypotheses = static_cast<std::size_t>(arguments_.beam.beam);
    if (std::ssize(texts_) < arguments_.batch_size && texts_.size() * longest_ * hypotheses < most_padded_tokens)
      return;
    batches_.push_back(std::exchange(texts_, {}));
    longest_ = 0;
    if (std::ssize(batches_) == group_.size()) flush();
  }

  void refuse(std::int64_t line, const std::string& problem) {
    constexpr std::size_t most_answers = 1 << 16;
    answers_.push_back({.line = line, .problem = problem, .batch = 0, .text = 0, .cut = false});
    if (answers_.size() >= most_answers) flush();
  }

  // Answers all texts that were added.
  void flush() {
    if (!texts_.empty()) batches_.push_back(std::exchange(texts_, {}));
    const auto answer = [&](const TextBatch& texts) { return text_answers_.answer(texts); };
    const auto start = std::chrono::steady_clock::now();
    const auto given = batches_.empty() ? std::vector<Answers>{} : answer_together(group_, answer, batches_);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const auto& of_batch : given)
      for (const auto& one : of_batch) {
        tokens_ += one.value("tokens", std::int64_t{0});
        cut_targets_ += one.value("target_cut", false);
      }
    std::string shown;
    for (const auto& answer : answers_) {
      if (!answer.problem.empty()) {
        ++malformed_;
        log::warning("{}:{}: no prediction: {}", source_, answer.line, answer.problem);
      }
      shown += describe(answer, answer.problem.empty() ? &given[answer.batch][answer.text] : nullptr) + "\n";
    }
    lines_ += std::ssize(answers_);
    cut_ += std::ranges::count(answers_, true, &Answer::cut);
    answers_.clear();
    batches_.clear();
    longest_ = 0;
    if (!shown.empty()) print(shown);
  }

  void finish(std::int64_t context) const {
    if (lines_ == 0) log::warning("{}: is empty: there is no text to predict", source_);
    if (const auto read = lines_ - malformed_; read > 0)
      log::info("{}: {}, {} texts/s{}", source_, with_noun(read, "text"),
                human_count(static_cast<double>(read) / seconds_),
                tokens_ == 0 ? "" : fmt::format(", {} tokens/s", human_count(static_cast<double>(tokens_) / seconds_)));
    if (cut_ > 0)
      log::warning("{}: {} lines are longer than the model's {} tokens and were cut off", source_, cut_, context);
    if (cut_targets_ > 0)
      log::warning("{}: {} targets reached the length limit: --further-tokens {}, model.context {}", source_,
                   cut_targets_, arguments_.beam.further_tokens, context);
    if (malformed_ > 0) fail_data("{}: {} of {} lines got no prediction; see above", source_, malformed_, lines_);
  }

 private:
  struct Answer {
    std::int64_t line;
    std::string problem;      // why there is no prediction
    std::size_t batch, text;  // indices of the batch, and of the text in it
    bool cut;
  };

  std::string describe(const Answer& answer, const nlohmann::ordered_json* given) const {
    if (arguments_.scores) return describe_hypotheses(answer.line, given);
    if (!arguments_.json) return given == nullptr ? text_answers_.line_without_answer : text_answers_.line(*given);
    nlohmann::ordered_json json = {{"line", answer.line}};
    json.update(given == nullptr ? nlohmann::ordered_json{{"error", answer.problem}} : *given);
    if (given != nullptr) json["cut"] = answer.cut;
    return to_line(json);
  }

  // "LINE ||| TEXT ||| LOG-PROBABILITY ||| SCORE" for every hypothesis, the form of Moses' and Marian's n-best lists.
  static std::string describe_hypotheses(std::int64_t line, const nlohmann::ordered_json* given) {
    if (given == nullptr) return fmt::format("{} ||| ||| ||| ", line);
    std::vector<std::string> lines;
    const auto add = [&](const nlohmann::ordered_json& hypothesis) {
      lines.push_back(
          fmt::format("{} ||| {} ||| {:.6f} ||| {:.6f}", line, on_one_line(hypothesis.at("text").get<std::string>()),
                      hypothesis.at("log_probability").get<double>(), hypothesis.at("score").get<double>()));
    };
    if (!given->contains("hypotheses")) add(*given);
    for (const auto& hypothesis : given->value("hypotheses", nlohmann::ordered_json::array())) add(hypothesis);
    return fmt::format("{}", fmt::join(lines, "\n"));
  }

  const PredictArguments& arguments_;
  const TextAnswers& text_answers_;
  std::string source_;
  ProcessGroup& group_;
  std::vector<Answer> answers_;
  std::vector<TextBatch> batches_;  // full ones, fewer than processes
  TextBatch texts_;                 // the batch that is being filled
  std::size_t longest_ = 0;         // of texts_, in tokens
  std::int64_t lines_ = 0, malformed_ = 0, cut_ = 0, cut_targets_ = 0;
  std::int64_t tokens_ = 0;  // written
  double seconds_ = 0;       // of the model
};

void predict_line(const Line& line, TextPredictor& predictor) {
  if (line.too_long)
    predictor.refuse(line.number, fmt::format("the line is longer than {} bytes", longest_line));
  else
    predictor.add(line.text, line.number);
}

void predict_lines(const InputFile& input, TextPredictor& predictor) {
  log::info("{}: plain lines, a text on every line", input.name());
  constexpr std::size_t looked_at = 4096;
  std::string start(looked_at, '\0');
  start.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(input.descriptor(), start.data(), start.size(), 0))));
  if (is_packed_file(start)) {
    std::istringstream texts(unpack(input.read_to_end(), largest_text_file, input.name()));
    for (Line line{.number = 1}; std::getline(texts, line.text); ++line.number) {
      throw_if_stopped();
      line.too_long = line.text.size() > longest_line;
      if (line.number == 1) drop_byte_order_mark(line.text);
      if (line.text.ends_with('\r')) line.text.pop_back();
      predict_line(line, predictor);
    }
    return;
  }
  if (start.find('\0') != std::string::npos) fail_data("{}: {}", input.name(), nul_bytes_problem);
  LineReader reader(input.descriptor(), input.name(), longest_line);  // also from a pipe
  while (const auto line = reader.next()) {
    predict_line(*line, predictor);
    // A slow writer gets answers line by line, a fast one in batches.
    if (!reader.is_ready()) predictor.flush();
  }
}

void predict_table(const InputFile& input, TableFormat format, const TableColumns& columns, TextPredictor& predictor) {
  const bool is_json = format == TableFormat::jsonl;
  const auto table = read_table(input.read_to_end(), input.name(), format, columns);
  const auto field = in_quotes(columns.columns[0].field);
  log::info("{}: {}", input.name(),
            is_json                     ? fmt::format("JSON lines; the texts are member {}", field)
            : table.has_guessed_columns ? fmt::format("{} without a header; the texts are column 1", to_string(format))
                                        : fmt::format("{} {} a header; the texts are column {}", to_string(format),
                                                      table.has_header ? "with" : "without", field));
  auto malformed = table.malformed.begin();
  const auto refuse_before = [&](std::int64_t line) {
    for (; malformed != table.malformed.end() && malformed->line < line; ++malformed)
      predictor.refuse(malformed->line, malformed->why);
  };
  for (const auto& row : table.rows) {
    refuse_before(row.line);
    predictor.add(row.fields[0], row.line);
  }
  refuse_before(std::numeric_limits<std::int64_t>::max());
}

bool is_number(std::string_view field) { return field.find_first_not_of("0123456789") == field.npos; }

// Whether the run's training table had a header; nothing for texts of other forms.
std::optional<bool> had_header(const LoadedRun& run) {
  const auto environment = read_environment(run.directory);
  const auto place = "/data/train/header"_json_pointer;
  if (!environment.contains(place) || !environment.at(place).is_boolean()) return std::nullopt;
  return environment.at(place).get<bool>();
}

// The columns of the run's training table, unless the flags name others.
TableColumns columns_of(const PredictArguments& arguments, const LoadedRun& run) {
  const auto* pairs = std::get_if<SequenceToSequenceConfig>(&run.experiment.config.task);
  auto columns = pairs != nullptr ? columns_of(pairs->data) : columns_of(classification(run.experiment.config).data);
  columns.only_first = true;
  columns.absence_advice = "; --column names another one, and --header absent reads a table without a header";
  auto& column = columns.columns[0];
  bool is_numbered = is_number(column.field) && is_number(columns.columns[1].field);
  if (arguments.column) {
    column.field = *arguments.column;
    column.key = "--column";
    columns.are_usual = false;
    is_numbered = is_number(column.field);
  }
  const bool is_named = arguments.column && !is_numbered;
  if (arguments.header == TableHeader::absent && is_named)
    fail_usage("--column {}: without a header columns have no names, but numbers from 1", in_quotes(column.field));
  if (arguments.header == TableHeader::absent && !is_number(column.field)) column.field = "1";
  if (arguments.header != TableHeader::automatic)
    columns.header = arguments.header;
  else if (is_named)
    columns.header = TableHeader::present;
  else if (columns.header == TableHeader::automatic)
    // A first row without the names must not become a text, unless the training table had no header either.
    columns.header = had_header(run).value_or(!is_numbered) ? TableHeader::present : TableHeader::automatic;
  return columns;
}

void predict_file(const PredictArguments& arguments, const InputFile& input, const LoadedRun& run,
                  const TextAnswers& answers, ProcessGroup& group) {
  TextPredictor predictor(arguments, answers, input.name(), group);
  const auto given = arguments.format;
  const auto format =
      given == TableFormat::automatic ? format_by_name(arguments.file).value_or(TableFormat::text) : given;
  const bool has_header = arguments.header != TableHeader::automatic;
  if (format == TableFormat::text && (arguments.column || has_header))
    fail_usage(
        "{}: {} is read as plain lines, which have no columns; --format csv, tsv or jsonl reads a table",
        arguments.column ? "--column " + *arguments.column : fmt::format("--header {}", to_string(arguments.header)),
        input.name());
  if (format == TableFormat::text) {
    predict_lines(input, predictor);
  } else {
    auto columns = columns_of(arguments, run);
    if (format == TableFormat::jsonl && has_header)
      fail_usage("--header {}: {} holds JSON lines, which have no header", to_string(arguments.header), input.name());
    if (format == TableFormat::jsonl) columns.header = TableHeader::automatic;  // the training table may have had one
    predict_table(input, format, columns, predictor);
  }
  predictor.flush();
  end_answers(group);
  predictor.finish(context_of(run.experiment.config.model));
}

// The options on the command line that have an effect on one task only.
struct TaskFlags {
  std::vector<std::string> of_targets, of_classes;
};

// Logs the effect of --threshold. Errors (exit code 2): a class has the name that stands for no class.
void describe_threshold(const PredictArguments& arguments, const std::vector<std::string>& labels) {
  if (!arguments.threshold) return;
  const double threshold = *arguments.threshold;
  if (labels.size() == 2)
    return log::info("--threshold {}: {} from a probability of {} on, else {}", threshold, in_quotes(labels[1]),
                     threshold, in_quotes(labels[0]));
  if (!arguments.json && std::ranges::count(labels, unsure) > 0)
    fail_usage("--threshold {}: the run has a class {}, which also stands for no class; --json writes null for that",
               threshold, in_quotes(unsure));
}

TextAnswers answers_of(const PredictArguments& arguments, const LoadedRun& run, const TaskFlags& given) {
  const auto& task = run.experiment.config.task;
  if (is<SequenceToSequenceConfig>(task)) {
    require_no_flags(given.of_classes, run);
    return target_answers(run, arguments.beam);
  }
  if (!is<ClassificationConfig>(task))
    fail_usage("--run {}: its task is {}; predict needs a classifier or a run of sequence_to_sequence",
               run.directory.path().string(), kind_of(task));
  require_no_flags(given.of_targets, run);
  describe_threshold(arguments, run.codec.labels);
  return class_answers(run, {.calibrated = !arguments.uncalibrated, .threshold = arguments.threshold});
}

void run_predict(const PredictArguments& arguments, const TaskFlags& given, ProcessGroup& group) {
  require_no_run(arguments.file);
  const auto input = group.is_first() ? std::make_unique<InputFile>(arguments.file) : nullptr;
  const auto run = arguments.choice.load(device_for(group, arguments.choice.device));
  const auto answers = answers_of(arguments, run, given);
  if (input) return predict_file(arguments, *input, run, answers, group);
  help_answer(group, answers.answer);
}

void require_possible(const PredictArguments& arguments) {
  if (arguments.column && arguments.column->empty())
    fail_usage("--column: is empty; it takes the name or the number of a column");
  const auto& beam = arguments.beam;
  if (beam.n_best > beam.beam)
    fail_usage("--n-best {}: a beam of {} has no more hypotheses; raise --beam", beam.n_best, beam.beam);
  if (beam.n_best > 1 && !arguments.json && !arguments.scores)
    fail_usage("--n-best {}: a line has one text; add --scores or --json", beam.n_best);
}

}  // namespace

void add_predict_command(CLI::App& app) {
  auto& command =
      *app.add_subcommand("predict", "predict classes of texts, or translate them, in plain lines or in a table");
  auto arguments = std::make_shared<PredictArguments>();
  arguments->choice.add_to(command);
  command.add_option("file", arguments->file, "lines of text, or a table (csv, tsv, jsonl); default: standard input")
      ->capture_default_str();
  add_choice(command, "--format", arguments->format,
             "format of the file; text: plain lines; auto: by the file's name, else text");
  add_text(command, "--column", arguments->column, "NAME|NUMBER",
           "column of the texts: its name in the header, or its number counted from 1; or a member of JSON lines; "
           "default: that of the run's training table");
  add_choice(command, "--header", arguments->header,
             "whether the first row of a table names its columns; absent: the texts are column 1, or that of --column; "
             "auto: as in the run's training table");
  add_whole_number(command, "--batch-size", arguments->batch_size, 1, 4096, "texts per forward pass");
  add_beam(command, arguments->beam);
  add_whole_number(command, "--n-best", arguments->beam.n_best, 1, std::int64_t{1} << 20,
                   "hypotheses in the answer, with --scores or --json");
  command
      .add_option("--threshold", arguments->threshold,
                  "of two classes: the probability from which the second one is predicted, instead of the likelier "
                  "one; of more: the lowest probability of a prediction, below it the text is 'unsure' (--json: null)")
      ->transform(number_in(between(0, 1)));
  command.add_flag("--uncalibrated", arguments->uncalibrated,
                   "probabilities without the temperature that was fitted to validation texts");
  auto* scores = command.add_flag("--scores", arguments->scores,
                                  "translations with their scores: a line LINE ||| TEXT ||| LOG-PROBABILITY ||| SCORE "
                                  "for every hypothesis");
  arguments->processes.add_to(command);
  command
      .add_flag("--json", arguments->json,
                "one line of JSON per text, with the probability of every class, or of every hypothesis")
      ->excludes(scores);
  command.footer(
      "Prints label, tab, probability for every line or row, in order, or the target that is generated from it; plain\n"
      "lines are answered as soon as they arrive.\n"
      "A text that cannot be read (not UTF-8, blank, a line over 1 MiB, a malformed row) is named on stderr and gets\n"
      "empty fields; the exit code is then 3. Texts longer than the model's context are cut off.\n"
      "With several processes the first one reads the texts, and gives each process one batch at a time.\n"
      "Examples:\n"
      "  metaformer predict --run runs/reviews reviews.txt > labels.tsv\n"
      "  metaformer predict --run runs/reviews new.csv --json --processes 2\n"
      "  metaformer predict --run runs/reviews other.csv --column review\n"
      "  metaformer predict --run runs/reviews new.txt --threshold 0.9\n"
      "  metaformer predict --run runs/multi30k --beam 4 german.txt > english.txt\n"
      "  metaformer predict --run runs/multi30k --beam 4 --n-best 4 --scores german.txt > n-best.txt\n"
      "  tail -f comments.txt | metaformer predict --run runs/reviews --json");
  command.callback([arguments, &command] {
    require_possible(*arguments);
    auto flags = beam_flags;
    flags.insert(flags.end(), {"--n-best", "--scores"});
    const TaskFlags given{.of_targets = given_flags(command, flags),
                          .of_classes = given_flags(command, {"--threshold", "--uncalibrated"})};
    arguments->processes.run([&](ProcessGroup& group) { run_predict(*arguments, given, group); });
  });
}

}  // namespace metaformer
