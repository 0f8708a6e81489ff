#pragma once
// What a language model writes while it is trained (task.sample_interval).

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/sequence_model.h"
#include "text/tokenizer.h"

namespace metaformer {

// The prompt where none is given: a line break, as nanoGPT starts, or the first token of a vocabulary that has none.
std::string default_prompt(const Tokenizer& tokenizer);

// {"prompt", "text", "tokens", "temperature", "top_k", "seed"}: 200 tokens after the default prompt, the text without
// it. A function of the weights, `seed` and `step`; draws from no stream that training uses, and leaves the model in
// the mode it was in. Nothing when a signal asks to stop meanwhile.
std::optional<nlohmann::ordered_json> write_sample(SequenceModel& model, const Tokenizer& tokenizer,
                                                   torch::Device device, std::uint64_t seed, std::int64_t step);

// The text on lines of its own in the log.
void log_sample(std::int64_t step, const nlohmann::ordered_json& sample);

}  // namespace metaformer
