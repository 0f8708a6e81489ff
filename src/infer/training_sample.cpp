#include "infer/training_sample.h"

#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/signals.h"
#include "infer/sampling.h"
#include "text/special_tokens.h"

namespace metaformer {

std::string default_prompt(const Tokenizer& tokenizer) {
  try {
    if (!tokenizer.encode("\n").empty()) return "\n";
  } catch (const Error&) {  // it is not in the vocabulary
  }
  return tokenizer.decode(std::vector<std::int32_t>{0});
}

std::optional<nlohmann::ordered_json> write_sample(SequenceModel& model, const Tokenizer& tokenizer,
                                                   torch::Device device, std::uint64_t seed, std::int64_t step) {
  constexpr std::int64_t length = 200;
  SamplingOptions options;
  options.graphs = false;  // they would take memory beside that of the training
  options.never = ids_without_token(tokenizer);
  constexpr int exact_in_json = 11;  // bits that are dropped, so that a JSON number holds the seed
  options.seed = Rng(seed, RandomPurpose::sampling, static_cast<std::uint64_t>(step)).bits(0) >> exact_in_json;
  const auto prompt = default_prompt(tokenizer);
  std::vector<std::int32_t> tokens;
  {
    TextGenerator generator(model, tokenizer.encode(prompt), options, device);
    while (static_cast<std::int64_t>(tokens.size()) < length && stop_signal() == 0)
      tokens.push_back(generator.next().front());
  }
  if (static_cast<std::int64_t>(tokens.size()) < length) return std::nullopt;
  return nlohmann::ordered_json{{"prompt", prompt},       {"text", tokenizer.decode(tokens)},
                                {"tokens", length},       {"temperature", options.temperature},
                                {"top_k", options.top_k}, {"seed", options.seed}};
}

static std::string without_control_characters(std::string text) {
  for (auto& byte : text)
    if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f) byte = ' ';
  return text;
}

void log_sample(std::int64_t step, const nlohmann::ordered_json& sample) {
  log::info("sample at step {}:", step);
  std::istringstream lines(sample.at("text").get<std::string>());
  for (std::string line; std::getline(lines, line);) log::info("  {}", without_control_characters(line));
}

}  // namespace metaformer
