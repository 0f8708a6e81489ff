#include "infer/target_scores.h"

#include <chrono>

#include "base/log.h"
#include "base/text.h"
#include "text/overlap.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;
using Clock = std::chrono::steady_clock;

// Adds up over the lines of a split.
class TextScores {
 public:
  void add(const std::string& hypothesis, const std::string& reference) {
    bleu_ += bleu_statistics(hypothesis, reference, {});
    lowercase_bleu_ += bleu_statistics(hypothesis, reference, lowercase);
    chrf_ += chrf_statistics(hypothesis, reference);
    rouge_ += rouge_statistics(hypothesis, reference);
  }

  Scores report() const {
    const auto rouge_scores = rouge(rouge_);
    return {{"bleu", bleu(bleu_).bleu},
            {"bleu_lowercase", bleu(lowercase_bleu_).bleu},
            {"chrf", chrf(chrf_)},
            {"rouge_1", rouge_scores.rouge_1.f1},
            {"rouge_2", rouge_scores.rouge_2.f1},
            {"rouge_l", rouge_scores.rouge_l.f1}};
  }

  static constexpr BleuOptions lowercase{.lowercase = true};

 private:
  BleuStatistics bleu_, lowercase_bleu_;
  ChrfStatistics chrf_;
  RougeStatistics rouge_;
};

// Token ids by place in the split; of other processes' turns none.
std::vector<Ids> write_own_turns(SequenceModel& model, const ExperimentConfig& config, torch::Device device,
                                 const PairDataset& pairs, Split split, const BeamOptions& options,
                                 ProcessGroup& group) {
  const auto rows = std::clamp<std::int64_t>(1024 / options.beam, 1, 32);  // wide beams must not fill the memory
  const auto most = static_cast<std::size_t>(context_of(config.model) - 1);
  std::vector<Ids> written(static_cast<std::size_t>(pairs.count(split)));
  for (auto first = group.rank() * rows; first < pairs.count(split); first += group.size() * rows) {
    std::vector<Ids> sources;
    for (auto i = first; i < std::min(first + rows, pairs.count(split)); ++i) {
      auto& source = sources.emplace_back(pairs.pair(split, i).source);
      source.resize(std::min(source.size(), most));
    }
    auto place = written.begin() + first;
    for (auto& best : write_targets(model, config, device, *pairs.codec().tokenizer, sources, options))
      *place++ = std::move(best.front().ids);
  }
  return written;
}

std::vector<Ids> share(std::vector<Ids> written, ProcessGroup& group) {
  if (group.size() == 1) return written;
  for (const auto& of_rank : group.gather(Json(written).dump())) {
    const auto theirs = Json::parse(of_rank).get<std::vector<Ids>>();
    for (std::size_t i = 0; i < written.size(); ++i)
      if (written[i].empty()) written[i] = theirs[i];
  }
  return written;
}

}  // namespace

std::string first_sentence(const std::string& text) {
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const bool ends = text[i] == '.' || text[i] == '?' || text[i] == '!';
    if (ends && (text[i + 1] == ' ' || text[i + 1] == '\n')) return text.substr(0, i + 1);
  }
  return text;
}

WrittenScores score_written_targets(SequenceModel& model, const ExperimentConfig& config, torch::Device device,
                                    const PairDataset& pairs, Split split, const BeamOptions& options,
                                    ProcessGroup& group) {
  const auto start = Clock::now();
  const auto written = share(write_own_turns(model, config, device, pairs, split, options, group), group);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  TextScores scores, copied, first;
  std::int64_t exact = 0, tokens = 0;
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const auto texts = pairs.texts(split, index);
    scores.add(pairs.codec().tokenizer->decode(written[i]), texts.target);
    copied.add(texts.source, texts.target);
    first.add(first_sentence(texts.source), texts.target);
    exact += written[i] == pairs.pair(split, index).target ? 1 : 0;
    tokens += std::ssize(written[i]);
  }
  Scores report = {{"beam", options.beam},
                   {"alpha", options.alpha},
                   {"exact_match", static_cast<double>(exact) / static_cast<double>(written.size())}};
  const auto of_texts = scores.report();
  report.insert(report.end(), of_texts.begin(), of_texts.end());
  const auto value = [&](std::string_view key) { return value_of(report, key).value(); };
  log::info("{} targets written with a beam of {}, {} tokens/s: BLEU {:.2f}, chrF {:.2f}, ROUGE-L {:.2f}%",
            written.size(), options.beam, human_count(static_cast<double>(tokens) / seconds), value("bleu"),
            value("chrf"), 100 * value("rouge_l"));
  return {.scores = std::move(report),
          .baselines = {{"source", copied.report()}, {"first_sentence", first.report()}},
          .signatures = {{"bleu", bleu_signature({})},
                         {"bleu_lowercase", bleu_signature(TextScores::lowercase)},
                         {"chrf", chrf_signature()}}};
}

}  // namespace metaformer
