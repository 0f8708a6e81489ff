#include "infer/answers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "data/token_rows.h"
#include "infer/prediction.h"
#include "infer/sampling.h"
#include "ops/autocast.h"
#include "text/special_tokens.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

std::vector<Answers> answer_together(ProcessGroup& group, const AnswerBatch& answer,
                                     const std::vector<TextBatch>& batches) {
  if (group.size() == 1) return {answer(batches.front())};
  group.gather(Json(batches).dump());
  std::vector<Answers> answers = {answer(batches.front())};
  const auto of_ranks = group.gather("");
  for (std::size_t rank = 1; rank < batches.size(); ++rank) answers.push_back(Json::parse(of_ranks[rank]));
  return answers;
}

void help_answer(ProcessGroup& group, const AnswerBatch& answer) {
  const auto own = static_cast<std::size_t>(group.rank());
  while (true) {
    const auto message = group.gather("").front();
    if (message.empty()) return;
    const auto batches = Json::parse(message).get<std::vector<TextBatch>>();
    group.gather(own < batches.size() ? Json(answer(batches[own])).dump() : "");
  }
}

void end_answers(ProcessGroup& group) {
  if (group.size() > 1) group.gather("");
}

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

std::vector<std::vector<Hypothesis>> write_targets(SequenceModel& model, const ExperimentConfig& config,
                                                   torch::Device device, const Tokenizer& tokenizer,
                                                   const TextBatch& sources, const BeamOptions& options) {
  const AutocastScope autocast(config.train.precision, device);
  const auto mark = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  auto never = ids_without_token(tokenizer);
  if (const auto unknown = tokenizer.unknown_id()) never.push_back(*unknown);
  auto written = beam_search(model, sources, mark, never, options, device);
  const auto is_empty = [](const auto& hypotheses) { return hypotheses.empty(); };
  require_finite_answers(std::count_if(written.begin(), written.end(), is_empty), std::ssize(written));
  return written;
}

std::vector<std::vector<Hypothesis>> write_targets(const LoadedRun& run, const TextBatch& sources,
                                                   const BeamOptions& options) {
  return write_targets(*run.model, run.experiment.config, run.device, *run.codec.tokenizer, sources, options);
}

Hypothesis write_target(const LoadedRun& run, const std::vector<std::int32_t>& source, const BeamOptions& options) {
  return write_targets(run, {source}, options).front().front();
}

}  // namespace metaformer
