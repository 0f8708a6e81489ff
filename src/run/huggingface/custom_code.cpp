#include "run/huggingface/custom_code.h"

#include <fmt/format.h>

#include "config/writer.h"

namespace metaformer {

namespace {

constexpr std::string_view configuration_module = "configuration_metaformer", modeling_module = "modeling_metaformer";

std::string_view class_of(const ModelConfig& model) {
  if (recurrent(model) != nullptr) return "RecurrentForCausalLM";
  return is<FeedForwardModelConfig>(model) ? "FeedForwardForCausalLM" : "MetaformerForCausalLM";
}

}  // namespace

nlohmann::ordered_json write_custom_config(const ModelConfig& model, std::int64_t vocabulary) {
  const auto options = config_to_json({.model = model}).at("model");
  return {{"architectures", {class_of(model)}},
          {"model_type", custom_model_type},
          {"auto_map",
           {{"AutoConfig", fmt::format("{}.MetaformerConfig", configuration_module)},
            {"AutoModelForCausalLM", fmt::format("{}.{}", modeling_module, class_of(model))}}},
          {"vocab_size", vocabulary},
          {"tie_word_embeddings", options.at("embedding").at("tie")},
          {"model", options}};
}

std::vector<std::pair<std::string, std::string>> custom_code_files() {
  const auto file = [](std::string_view module, std::string_view content) {
    return std::pair(fmt::format("{}.py", module), std::string(content));
  };
  return {file(configuration_module, embedded::configuration_code), file(modeling_module, embedded::modeling_code),
          file("attention_metaformer", embedded::attention_code), file("mixers_metaformer", embedded::mixers_code)};
}

}  // namespace metaformer
