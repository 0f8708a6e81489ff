#include "run/huggingface/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "config/writer.h"

namespace metaformer {

namespace {

// Of the library's own bookkeeping, of generation and of other tasks.
constexpr std::string_view without_effect =
    "_attn_implementation _attn_implementation_autoset _name_or_path architectures attn_impl attn_implementation "
    "bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward cross_attention_hidden_size "
    "decoder_start_token_id diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size "
    "eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id "
    "gradient_checkpointing id2label initializer_factor initializer_range is_decoder label2id length_penalty "
    "max_length min_length model_type no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences "
    "output_attentions output_hidden_states output_scores pad_token_id prefix problem_type remove_invalid_values "
    "repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens task_specific_params "
    "temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript "
    "transformers.js_config transformers_version typical_p unk_token_id use_bfloat16 use_cache use_flash_attention "
    "use_flash_attention_2 use_flash_attn use_sdpa_attention ";

// Words of keys that change what a model computes, or how its weights are stored, in this or another architecture.
constexpr std::string_view words_of_models =
    "activation act_fn adapter alibi attention attn auto_map bias conv_ dim embed expert factor ffn gated glu head "
    "hidden inner interleav kv layer logit lora mixer mlp moe multiplier nope norm position qk quant relative "
    "residual rope rotary router scale scaling shared sink sliding soft sparse ssm theta tie_ tied window ";

std::vector<std::string> words_of(std::string_view list) {
  std::istringstream stream{std::string(list)};
  return {std::istream_iterator<std::string>(stream), {}};
}

// Names that begin with an underscore are the library's own notes.
bool may_have_effect(const std::string& key) {
  static const auto words = words_of(words_of_models);
  return !key.starts_with('_') && std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return key.find(word) != std::string::npos;
  });
}

bool is_free(const std::string& key, const TransformerConfig& given, const TransformerConfig& needed) {
  if (key == "model.context") return !is<LearnedPositionsConfig>(needed.positions);
  if (key == "model.feed_forward.ratio") return given.hidden_width() == needed.hidden_width();
  return keeps_function(key);
}

}  // namespace

ConfigFile::ConfigFile(const std::string& text, std::string source)
    : json_(parse_json(text)), source_(std::move(source)) {
  if (!json_.is_object()) throw Error(ExitCode::data, source_ + ": not a JSON object");
}

void ConfigFile::refuse(const std::string& key, const std::string& why) const {
  const auto found = json_.find(key);
  if (found == json_.end()) throw Error(ExitCode::data, fmt::format("{}: {} is missing; {}", source_, key, why));
  throw Error(ExitCode::data, fmt::format("{}: {} is {}; {}", source_, key, printable(json_text(*found)), why));
}

const nlohmann::json& ConfigFile::value(const char* key) {
  static const nlohmann::json none;
  known_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() ? none : *found;
}

std::int64_t ConfigFile::count(const char* key, std::optional<std::int64_t> fallback) {
  constexpr std::uint64_t most = std::uint64_t{1} << 31;
  const auto& given = value(key);
  if (given.is_null() && fallback) return *fallback;
  if (!given.is_number_unsigned() || given == 0 || given >= most) refuse(key, "expected a whole number above 0");
  return given.get<std::int64_t>();
}

double ConfigFile::number(const char* key, double fallback) {
  const auto& given = value(key);
  if (given.is_null()) return fallback;
  if (!given.is_number()) refuse(key, "expected a number");
  return given.get<double>();
}

bool ConfigFile::flag(const char* key, bool fallback) {
  const auto& given = value(key);
  if (given.is_null()) return fallback;
  if (!given.is_boolean()) refuse(key, "expected true or false");
  return given.get<bool>();
}

std::string ConfigFile::text(const char* key, std::optional<std::string> fallback) {
  const auto& given = value(key);
  if (given.is_null() && fallback) return *fallback;
  if (!given.is_string()) refuse(key, "expected a text");
  return given.get<std::string>();
}

nlohmann::json ConfigFile::object(const char* key) {
  const auto& given = value(key);
  if (given.is_null()) return nlohmann::json::object();
  if (!given.is_object()) refuse(key, "expected an object");
  return given;
}

void ConfigFile::require(const char* key, const nlohmann::json& only) {
  const auto& given = value(key);
  if (!given.is_null() && given != only) refuse(key, fmt::format("only {} is supported", json_text(only)));
}

std::vector<std::string> ConfigFile::unknown_keys() const {
  static const auto free = words_of(without_effect);
  std::vector<std::string> unknown;
  for (const auto& [key, given] : json_.items()) {
    const bool harmless = std::find(free.begin(), free.end(), key) != free.end();
    if (harmless || known_.contains(key)) continue;
    if (!given.is_null() && may_have_effect(key))
      refuse(key, "this key is unknown and may change the model; remove it if it does not");
    unknown.push_back(key);
  }
  return unknown;
}

std::vector<std::string> config_differences(const TransformerConfig& given, const TransformerConfig& needed) {
  const auto values = flattened(config_to_json({.model = given}));
  std::vector<std::string> differences;
  for (const auto& [key, value] : flattened(config_to_json({.model = needed}))) {
    const auto found = values.find(key);  // an option of another kind may be missing
    if (key.starts_with("model.") && found != values.end() && found->second != value && !is_free(key, given, needed))
      differences.push_back(fmt::format("{} is {} and must be {}", key, found->second, value));
  }
  return differences;
}

}  // namespace metaformer
