#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/command_line.h"
#include "core/error.h"
#include "core/line_reader.h"
#include "core/log.h"
#include "core/text.h"
#include "train/prediction.h"
#include "train/run.h"

namespace metaformer {

namespace {

struct PredictArguments {
  RunChoice choice;
  std::string file = "-";
  std::int64_t batch_size = 32;
  bool json = false;
};

class InputFile {
 public:
  explicit InputFile(const std::string& path) : name_(path == "-" ? "standard input" : path) {
    if (path != "-") descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw Error(ExitCode::data, fmt::format("{}: {}", in_quotes(path), std::strerror(errno)));
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int descriptor_ = STDIN_FILENO;
};

constexpr std::size_t longest_line = 1 << 20;

// Answers lines in their order, a batch at a time.
class LinePredictor {
 public:
  LinePredictor(const PredictArguments& arguments, const LoadedRun& run, std::string source)
      : arguments_(arguments), run_(run), source_(std::move(source)) {}

  void add(const Line& line) {
    Answer answer{.line = line.number, .problem = {}, .text = texts_.size(), .cut = false};
    try {
      texts_.push_back(encode(line, answer.cut));
      longest_ = std::max(longest_, texts_.back().size());
    } catch (const Error& error) {
      answer.problem = error.what();
    }
    answers_.push_back(std::move(answer));
  }

  // Whatever the batch size, long texts must not fill the memory.
  bool is_full() const {
    constexpr std::size_t most_padded_tokens = 1 << 17;
    return answers_.size() >= static_cast<std::size_t>(arguments_.batch_size) ||
           texts_.size() * longest_ >= most_padded_tokens;
  }

  void flush() {
    const auto predictions = texts_.empty() ? std::vector<Prediction>{} : predict(*run_.model, texts_, run_.device);
    std::string shown;
    for (const auto& answer : answers_) {
      if (!answer.problem.empty()) {
        ++malformed_;
        log::warning("{}:{}: no prediction: {}", source_, answer.line, answer.problem);
      }
      shown += describe(answer, answer.problem.empty() ? &predictions[answer.text] : nullptr) + "\n";
    }
    cut_ += std::count_if(answers_.begin(), answers_.end(), [](const Answer& answer) { return answer.cut; });
    lines_ += static_cast<std::int64_t>(answers_.size());
    answers_.clear();
    texts_.clear();
    longest_ = 0;
    if (!shown.empty()) print(shown);
  }

  void finish() const {
    if (cut_ > 0)
      log::warning("{}: {} lines are longer than the model's {} tokens and were cut off", source_, cut_,
                   run_.model->config().context);
    if (malformed_ > 0)
      throw Error(ExitCode::data,
                  fmt::format("{}: {} of {} lines got no prediction; see above", source_, malformed_, lines_));
  }

 private:
  struct Answer {
    std::int64_t line;
    std::string problem;  // why there is no prediction
    std::size_t text;     // which of texts_
    bool cut;
  };

  std::vector<std::int32_t> encode(const Line& line, bool& cut) const {
    if (line.too_long) throw Error(ExitCode::data, fmt::format("the line is longer than {} bytes", longest_line));
    auto ids = run_.codec.tokenizer->encode(line.text);
    if (ids.empty()) throw Error(ExitCode::data, "the line is blank");
    cut = truncate(ids, run_.model->config().context, run_.experiment.config.data.truncation);
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

  // A label out of a quoted field may hold what separates our own fields.
  static std::string on_one_line(std::string label) {
    std::replace_if(
        label.begin(), label.end(), [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
    return label;
  }

  const PredictArguments& arguments_;
  const LoadedRun& run_;
  std::string source_;
  std::vector<Answer> answers_;
  std::vector<std::vector<std::int32_t>> texts_;
  std::size_t longest_ = 0;  // of texts_, in tokens
  std::int64_t lines_ = 0, malformed_ = 0, cut_ = 0;
};

void run_predict(const PredictArguments& arguments) {
  const InputFile input(arguments.file);
  const auto run = load_run(arguments.choice.run, arguments.choice.checkpoint, arguments.choice.device);
  if (run.experiment.config.task != TaskKind::classification)
    throw Error(ExitCode::usage, fmt::format("--run {}: its task is {}; predict needs a classifier",
                                             run.directory.path().string(), to_string(run.experiment.config.task)));
  LineReader reader(input.descriptor(), input.name(), longest_line);
  LinePredictor predictor(arguments, run, input.name());
  while (const auto line = reader.next()) {
    predictor.add(*line);
    // A slow writer gets its answers line by line, a fast one in batches.
    if (predictor.is_full() || !reader.is_ready()) predictor.flush();
  }
  predictor.flush();
  predictor.finish();
}

}  // namespace

void add_predict_command(CLI::App& app) {
  auto& command = *app.add_subcommand("predict", "classes of texts, one a line, from a classifier");
  auto arguments = std::make_shared<PredictArguments>();
  arguments->choice.add_to(command);
  command.add_option("file", arguments->file, "texts, one a line; - or nothing: standard input")->capture_default_str();
  command.add_option("--batch-size", arguments->batch_size, "lines per forward pass")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}));
  command.add_flag("--json", arguments->json, "one line of JSON per text, with the probability of every class");
  command.footer(
      "Prints label, tab, probability for every line, in order and as soon as they come. A line that cannot be read\n"
      "(not UTF-8, blank, over 1 MiB) is named on stderr and gets empty fields; the exit code is then 3. Texts longer\n"
      "than the model's context are cut off.\n"
      "Examples:\n"
      "  metaformer predict --run runs/reviews reviews.txt > labels.tsv\n"
      "  tail -f comments.txt | metaformer predict --run runs/reviews --json");
  command.callback([arguments] { run_predict(*arguments); });
}

}  // namespace metaformer
