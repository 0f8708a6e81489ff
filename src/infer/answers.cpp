#include "infer/answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "data/token_rows.h"
#include "infer/sampling.h"
#include "ops/autocast.h"
#include "tasks/batches.h"

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

std::vector<Prediction> predict(const LoadedRun& run, const std::vector<std::vector<std::int32_t>>& texts,
                                double temperature) {
  const torch::NoGradGuard no_grad;
  const auto& config = run.experiment.config;
  const AutocastScope autocast(config.train.precision, run.device);
  const auto batch = to_batch(pad_rows({texts.begin(), texts.end()}), run.device, context_of(config.model));
  const auto logits_bv = widened(run.predictor->logits(batch)).to(torch::kDouble);
  const auto raw_bv = torch::softmax(logits_bv, 1).to(torch::kCPU).contiguous();
  const auto probability_bv =
      temperature == 1 ? raw_bv : torch::softmax(logits_bv / temperature, 1).to(torch::kCPU).contiguous();
  const auto unanswered = probability_bv.isfinite().all(1).logical_not().sum().item<std::int64_t>();
  require_finite_answers(unanswered, std::ssize(texts));
  const auto classes = probability_bv.size(1);
  std::vector<Prediction> predictions;
  for (std::int64_t row = 0; row < probability_bv.size(0); ++row) {
    const auto* raw = raw_bv.const_data_ptr<double>() + row * classes;
    const auto* first = probability_bv.const_data_ptr<double>() + row * classes;
    const auto likeliest = std::max_element(raw, raw + classes) - raw;
    predictions.push_back({static_cast<std::size_t>(likeliest), {first, first + classes}});
  }
  return predictions;
}

std::optional<std::size_t> chosen_class(const Prediction& prediction, const std::optional<double>& threshold) {
  const auto& probabilities = prediction.probabilities;
  if (!threshold) return prediction.label;
  if (probabilities.size() == 2) return probabilities[1] >= *threshold ? 1 : 0;
  return probabilities[prediction.label] >= *threshold ? std::optional(prediction.label) : std::nullopt;
}

void Ensemble::add(const std::string& name, const ClassificationMeasures& measures, const ScoreSums& sums, Split split,
                   double temperature) {
  auto member = measures.probabilities_of(sums, split, temperature);
  if (members_++ == 0) {
    classes_ = measures.labels();
    text_digest_ = measures.text_digest(split);
    sum_ = std::move(member);
    return;
  }
  if (measures.labels() != classes_)
    throw Error(ExitCode::usage, fmt::format("{}: its classes are {}, those of the first run are {}", name,
                                             fmt::join(measures.labels(), ", "), fmt::join(classes_, ", ")));
  if (measures.text_digest(split) != text_digest_ || member.labels != sum_.labels)
    throw Error(ExitCode::usage,
                fmt::format("{}: its {} split has other texts than the first run's ({} and {}); an ensemble needs runs "
                            "of the same data and data.validation_fraction",
                            name, to_string(split), member.texts(), sum_.texts()));
  for (std::size_t i = 0; i < sum_.values.size(); ++i) sum_.values[i] += member.values[i];
}

ClassProbabilities Ensemble::mean() const {
  auto mean = sum_;
  for (auto& value : mean.values) value /= members_;
  return mean;
}

namespace {

auto encoder(const LoadedRun& run, std::int64_t context, Truncation truncation) {
  return [&run, context, truncation](const std::string& text, bool& cut) {
    if (text.find('\0') != std::string::npos) throw Error(ExitCode::data, "the line has NUL bytes; a text is UTF-8");
    auto ids = run.codec.tokenizer->encode(text);
    if (ids.empty()) throw Error(ExitCode::data, "the line is blank");
    cut = metaformer::truncate(ids, context, truncation);
    return ids;
  };
}

}  // namespace

std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
  return text;
}

TextAnswers class_answers(const LoadedRun& run, const ClassChoice& choice) {
  const auto& config = run.experiment.config;
  const double temperature = choice.calibrated ? run.progress.temperature.value_or(1) : 1;
  const auto answer = [&run, temperature, threshold = choice.threshold](const TextBatch& texts) {
    Answers answers;
    const auto& labels = run.codec.labels;
    for (const auto& prediction : predict(run, texts, temperature)) {
      auto& answer = answers.emplace_back();
      const auto chosen = chosen_class(prediction, threshold);
      answer["label"] = chosen ? Json(labels[*chosen]) : Json();
      answer["probability"] = prediction.probabilities[chosen.value_or(prediction.label)];
      for (std::size_t i = 0; i < labels.size(); ++i) answer["probabilities"][labels[i]] = prediction.probabilities[i];
    }
    return answers;
  };
  const auto line = [](const Json& answer) {
    const auto& label = answer.at("label");
    return fmt::format("{}\t{:.4f}", label.is_null() ? unsure : on_one_line(label),
                       answer.at("probability").get<double>());
  };
  return {.encode = encoder(run, context_of(config.model), classification(config).truncation),
          .answer = answer,
          .line = line,
          .line_without_answer = "\t"};
}

TextAnswers target_answers(const LoadedRun& run, const BeamOptions& options) {
  const auto describe = [&run](const Hypothesis& hypothesis) -> Json {
    return {{"text", run.codec.tokenizer->decode(hypothesis.ids)},
            {"tokens", hypothesis.ids.size()},
            {"log_probability", hypothesis.log_probability},
            {"score", hypothesis.score},
            {"target_cut", hypothesis.is_cut}};
  };
  const auto answer = [&run, options, describe](const TextBatch& texts) {
    Answers answers;
    for (const auto& hypotheses : write_targets(run, texts, options)) {
      auto& answer = answers.emplace_back(describe(hypotheses.front()));
      if (options.n_best == 1) continue;
      for (const auto& hypothesis : hypotheses) answer["hypotheses"].push_back(describe(hypothesis));
    }
    return answers;
  };
  const auto context = context_of(run.experiment.config.model) - 1;  // the last place is for the mark
  return {.encode = encoder(run, context, Truncation::head), .answer = answer, .line = [](const Json& answer) {
            return on_one_line(answer.at("text"));
          }};
}

}  // namespace metaformer
