// BLEU, chrF and ROUGE of lines, for comparison with the Python packages sacrebleu and rouge-score.
//
//   score_overlap FOLDER
//
// Reads FOLDER/hypotheses and FOLDER/references, whose lines end with a zero byte. Prints a JSON object of the scores
// of every line and of the corpus. Writes the tokens of the references, separated by spaces, to FOLDER/tokens_NAME.

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "text/overlap.h"

namespace {

using namespace metaformer;
using Json = nlohmann::ordered_json;
using Lines = std::vector<std::string>;

Lines read_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Lines lines;
  for (std::string line; std::getline(file, line, '\0');) lines.push_back(line);
  return lines;
}

// The scores of every line and of the corpus.
template <class CountsOf, class ScoreOf>
Json scores(const Lines& hypotheses, const Lines& references, CountsOf counts_of, ScoreOf score_of) {
  Json lines = Json::array();
  decltype(counts_of("", "")) corpus{};
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const auto counts = counts_of(hypotheses[i], references.at(i));
    lines.push_back(score_of(counts));
    corpus += counts;
  }
  return {{"lines", lines}, {"corpus", score_of(corpus)}};
}

Json bleu_values(const BleuStatistics& counts) {
  const auto score = bleu(counts);
  Json values = {score.bleu, score.brevity_penalty, counts.hypothesis[0], counts.reference[0]};
  for (const auto precision : score.precisions) values.push_back(precision);
  for (const auto number : counts.matches) values.push_back(number);
  for (const auto number : counts.hypothesis) values.push_back(number);
  return values;
}

Json chrf_values(const ChrfStatistics& counts) { return Json::array({chrf(counts)}); }

Json rouge_values(const RougeStatistics& statistics) {
  const auto found = rouge(statistics);
  Json values = Json::array();
  for (const auto& score : {found.rouge_1, found.rouge_2, found.rouge_l})
    for (const auto value : {score.precision, score.recall, score.f1}) values.push_back(value);
  return values;
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = argv[1];
  const auto hypotheses = read_lines(folder + "/hypotheses"), references = read_lines(folder + "/references");
  Json json;
  for (const auto& [name, options] : {std::pair<std::string, BleuOptions>{"13a", {}},
                                      {"13a_lowercase", {.lowercase = true}},
                                      {"none", {.is_tokenized = true}},
                                      {"none_lowercase", {.lowercase = true, .is_tokenized = true}}}) {
    const auto counts_of = [&options = options](const std::string& hypothesis, const std::string& reference) {
      return bleu_statistics(hypothesis, reference, options);
    };
    json[name] = scores(hypotheses, references, counts_of, bleu_values);
    json[name]["signature"] = bleu_signature(options);
    std::ofstream tokens(folder + "/tokens_" + name, std::ios::binary);
    for (const auto& line : references) {
      for (const auto& token : bleu_tokens(line, options)) tokens << token << ' ';
      tokens << '\0';
    }
  }
  json["chrf"] = scores(hypotheses, references, chrf_statistics, chrf_values);
  json["chrf"]["signature"] = chrf_signature();
  json["rouge"] = scores(hypotheses, references, rouge_statistics, rouge_values);
  std::cout << json << "\n";
}
