#include "infer/text_answers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "data/token_rows.h"
#include "infer/prediction.h"
#include "infer/write_targets.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;

std::vector<std::int32_t> encode_text(const LoadedRun& run, const std::string& text) {
  if (text.find('\0') != std::string::npos) throw Error(ExitCode::data, "the line has NUL bytes; a text is UTF-8");
  auto ids = run.codec.tokenizer->encode(text);
  if (ids.empty()) throw Error(ExitCode::data, "the line is blank");
  return ids;
}

// What separates fields and lines of the output may stand in a text, too.
std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
  return text;
}

class ClassAnswers : public TextAnswers {
 public:
  explicit ClassAnswers(const LoadedRun& run) : run_(run) {}

  std::vector<std::int32_t> encode(const std::string& text, bool& cut) const override {
    auto ids = encode_text(run_, text);
    cut = metaformer::truncate(ids, context_of(run_.experiment.config.model),
                               classification(run_.experiment.config).truncation);
    return ids;
  }

  Answers answer(const TextBatch& texts) const override {
    Answers answers;
    const auto& labels = run_.codec.labels;
    for (const auto& prediction : predict(run_, texts)) {
      auto& answer = answers.emplace_back();
      answer["label"] = labels[prediction.label];
      answer["probability"] = prediction.probabilities[prediction.label];
      for (std::size_t i = 0; i < labels.size(); ++i) answer["probabilities"][labels[i]] = prediction.probabilities[i];
    }
    return answers;
  }

  std::string line(const Json& answer) const override {
    return fmt::format("{}\t{:.4f}", on_one_line(answer.at("label")), answer.at("probability").get<double>());
  }
  std::string line_without_answer() const override { return "\t"; }

 private:
  const LoadedRun& run_;
};

class TargetAnswers : public TextAnswers {
 public:
  TargetAnswers(const LoadedRun& run, const BeamOptions& options) : run_(run), options_(options) {}

  std::vector<std::int32_t> encode(const std::string& text, bool& cut) const override {
    auto ids = encode_text(run_, text);
    cut = metaformer::truncate(ids, context_of(run_.experiment.config.model) - 1, Truncation::head);  // a mark follows
    return ids;
  }

  Answers answer(const TextBatch& texts) const override {
    Answers answers;
    for (const auto& hypotheses : write_targets(run_, texts, options_)) {
      auto& answer = answers.emplace_back(describe(hypotheses.front()));
      if (options_.n_best == 1) continue;
      for (const auto& hypothesis : hypotheses) answer["hypotheses"].push_back(describe(hypothesis));
    }
    return answers;
  }

  std::string line(const Json& answer) const override { return on_one_line(answer.at("text")); }
  std::string line_without_answer() const override { return ""; }

 private:
  Json describe(const Hypothesis& hypothesis) const {
    return {{"text", run_.codec.tokenizer->decode(hypothesis.ids)},
            {"tokens", hypothesis.ids.size()},
            {"log_probability", hypothesis.log_probability},
            {"score", hypothesis.score},
            {"target_cut", hypothesis.is_cut}};
  }

  const LoadedRun& run_;
  BeamOptions options_;
};

}  // namespace

std::unique_ptr<TextAnswers> class_answers(const LoadedRun& run) { return std::make_unique<ClassAnswers>(run); }

std::unique_ptr<TextAnswers> target_answers(const LoadedRun& run, const BeamOptions& options) {
  return std::make_unique<TargetAnswers>(run, options);
}

}  // namespace metaformer
